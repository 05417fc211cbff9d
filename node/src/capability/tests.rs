//! The simulated board as the dispatcher uses it: prepare, then run.

use super::*;
use hearth_shared::command::gpio::PinState;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::sync::Notify;

/// Keeps what was recorded and wakes who waits for it.
#[derive(Debug, Default)]
struct Tape {
    readings: Mutex<Vec<(String, f64)>>,
    events: Mutex<Vec<(String, Value)>>,
    news: Notify,
}

impl Recorder for Tape {
    fn reading(&self, sensor: &str, value: f64) {
        self.readings.lock().unwrap().push((sensor.into(), value));
        self.news.notify_waiters();
    }
    fn event(&self, kind: &str, json: String) {
        self.events.lock().unwrap().push((kind.into(), serde_json::from_str(&json).unwrap()));
        self.news.notify_waiters();
    }
}

impl Tape {
    async fn until(&self, what: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if what(self) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it was not recorded in time");
    }

    fn has(&self, kind: &str, body: &Value) -> bool {
        self.events.lock().unwrap().iter().any(|(k, b)| k == kind && b == body)
    }
}

struct Bench {
    board: Arc<Board>,
    tape: Arc<Tape>,
    home: TempDir,
}

fn bench(toml: &str) -> Bench {
    bench_under(Path::new("/"), toml).unwrap()
}

fn bench_under(root: &Path, toml: &str) -> Result<Bench, CommandError> {
    let (home, tape) = (tempfile::tempdir().unwrap(), Arc::new(Tape::default()));
    let config = toml::from_str(toml).unwrap();
    let board = Board::open_under(root, &config, "garage", home.path(), tape.clone())?;
    Ok(Bench { board, tape, home })
}

impl Bench {
    async fn call(&self, command: &str, params: Value) -> Result<Output, CommandError> {
        let invocation = Invocation::parse(command, &params.to_string())?;
        let prepared = self.board.prepare(invocation).await?;
        self.board.run(prepared, Duration::from_secs(30), CancellationToken::new()).await
    }

    async fn ok(&self, command: &str, params: Value) -> Value {
        serde_json::from_str(&self.call(command, params).await.unwrap().result).unwrap()
    }

    async fn code(&self, command: &str, params: Value) -> (ErrorCode, String) {
        let error = self.call(command, params).await.unwrap_err();
        (error.code, error.message)
    }

    async fn pin(&self, id: &str) -> PinState {
        serde_json::from_value(self.ok("gpio.read", json!({"pin": id})).await).unwrap()
    }

    fn button(&self) -> PathBuf {
        self.home.path().join("sim/button")
    }
}

#[tokio::test]
async fn a_simulated_board_declares_and_does_everything_by_itself() {
    let bench = bench("simulate = true");
    let inventory = bench.board.inventory();
    assert_eq!(inventory.commands, SPECS.iter().map(|s| s.name).collect::<Vec<_>>());
    assert!(inventory.simulated);
    assert_eq!(inventory.cameras[0].id, "cam0");
    assert_eq!(inventory.pins.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["button", "pump"]);
    assert_eq!(inventory.pins[1].detail, "output");
    assert_eq!(inventory.sensors[0].unit, "°C");

    let read = bench.ok("sensor.read", json!({"sensor": "temperature"})).await;
    assert!((15.0..27.0).contains(&read["value"].as_f64().unwrap()), "{read}");
    let shown = bench.ok("system.notify", json!({"title": "hello"})).await;
    assert_eq!(shown["delivered"], "log");
    let list = bench.ok("gpio.list", json!({})).await;
    assert_eq!(
        list["pins"][1],
        json!({"pin": "pump", "name": "pump", "direction": "output", "value": false, "safe": false})
    );
}

#[tokio::test]
async fn a_picture_is_a_jpeg_of_the_size_asked_for() {
    let bench = bench("simulate = true");
    let output = bench.call("camera.snap", json!({"maxWidth": 320, "quality": 0.5})).await.unwrap();
    let result: Value = serde_json::from_str(&output.result).unwrap();
    let data = &output.attachments[0].data;
    assert_eq!((&result["width"], &result["height"]), (&json!(320), &json!(240)));
    assert_eq!(result["sizeBytes"], data.len());
    assert_eq!(output.attachments[0].mime, "image/jpeg");
    assert!(data.starts_with(&[0xff, 0xd8]) && data.ends_with(&[0xff, 0xd9]));
    let (code, message) = bench.code("camera.snap", json!({"deviceId": "cam9"})).await;
    assert_eq!(code, ErrorCode::NotFound);
    assert!(message.contains("cam0"), "{message}");
}

#[tokio::test]
async fn waiting_for_a_picture_can_be_cancelled_and_has_a_limit() {
    let bench = bench("simulate = true");
    let snap = || Invocation::parse("camera.snap", r#"{"delayMs": 10000}"#).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let prepared = bench.board.prepare(snap()).await.unwrap();
    let error = bench.board.run(prepared, Duration::from_secs(30), cancel).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Cancelled);
    let prepared = bench.board.prepare(snap()).await.unwrap();
    let error =
        bench.board.run(prepared, Duration::from_millis(1), CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout);
}

#[tokio::test]
async fn wrong_pins_are_refused_before_anybody_is_asked() {
    let bench = bench(
        "simulate = true\n[[pin]]\nid = 'pump'\ndirection = 'output'\nmax_pulse_ms = 1000\n[[pin]]\nid = 'button'\ndirection = 'input'",
    );
    let (code, message) = bench.code("gpio.write", json!({"pin": "pumpe", "value": true})).await;
    assert_eq!(code, ErrorCode::NotFound);
    assert!(message.contains("button, pump"), "{message}");
    let (code, message) = bench.code("gpio.write", json!({"pin": "button", "value": true})).await;
    assert_eq!(code, ErrorCode::InvalidParams);
    assert!(message.contains("input"), "{message}");
    let (code, message) = bench.code("gpio.pulse", json!({"pin": "pump", "durationMs": 1001})).await;
    assert_eq!(code, ErrorCode::InvalidParams);
    assert!(message.contains("1000"), "{message}");
}

#[tokio::test]
async fn facts_do_not_change_by_themselves() {
    let bench = bench("simulate = true");
    let facts = async |command, params: Value| {
        let invocation = Invocation::parse(command, &params.to_string()).unwrap();
        bench.board.prepare(invocation).await.unwrap().facts
    };
    let write = json!({"pin": "pump", "value": true});
    let before = facts("gpio.write", write.clone()).await;
    bench.ok("gpio.write", write.clone()).await;
    assert_eq!(facts("gpio.write", write).await, before);
    assert_eq!(before["safe"], false);
    assert_eq!(facts("camera.snap", json!({})).await["camera"], "cam0");
}

#[tokio::test(start_paused = true)]
async fn a_pulse_ends_at_its_time_whoever_has_gone() {
    let bench = bench("simulate = true");
    let state = bench.ok("gpio.pulse", json!({"pin": "pump", "durationMs": 20_000})).await;
    assert_eq!((&state["value"], &state["pulseLeftMs"]), (&json!(true), &json!(20_000)));
    tokio::time::sleep(Duration::from_millis(19_999)).await;
    assert!(bench.pin("pump").await.value);
    tokio::time::sleep(Duration::from_millis(2)).await;
    let state = bench.pin("pump").await;
    assert!(!state.value && state.pulse_left_ms.is_none());
    assert!(bench.tape.has("gpio.pulse.ended", &json!({"pin": "pump", "value": false, "reason": "elapsed"})));
}

#[tokio::test(start_paused = true)]
async fn a_newer_pulse_or_write_replaces_a_running_pulse() {
    let bench = bench("simulate = true");
    let pulse = |ms: u64| bench.ok("gpio.pulse", json!({"pin": "pump", "durationMs": ms}));
    pulse(1_000).await;
    pulse(5_000).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(bench.pin("pump").await.value, "the timer of the first pulse ended the second");
    assert!(bench.tape.has("gpio.pulse.ended", &json!({"pin": "pump", "value": true, "reason": "replaced"})));
    bench.ok("gpio.write", json!({"pin": "pump", "value": true})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = bench.pin("pump").await;
    assert!(state.value && state.pulse_left_ms.is_none(), "a write is a state, not a pulse");
    assert_eq!(bench.tape.events.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn stopping_makes_outputs_safe_and_switches_nothing_afterwards() {
    let bench = bench("simulate = true\n[[pin]]\nid = 'valve'\ndirection = 'output'\nsafe = true");
    assert!(bench.pin("valve").await.value, "not safe at the start");
    bench.ok("gpio.pulse", json!({"pin": "valve", "value": false, "durationMs": 60_000})).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    bench.board.record(cancel).await;
    assert!(bench.pin("valve").await.value);
    assert!(bench.tape.has("gpio.pulse.ended", &json!({"pin": "valve", "value": true, "reason": "stopped"})));
    assert_eq!(bench.code("gpio.write", json!({"pin": "valve", "value": false})).await.0, ErrorCode::Busy);
}

#[tokio::test]
async fn a_simulated_input_follows_its_file_and_reports_edges() {
    let bench = bench("simulate = true");
    let (cancel, board) = (CancellationToken::new(), bench.board.clone());
    let recording = tokio::spawn({
        let cancel = cancel.clone();
        async move { board.record(cancel).await }
    });
    std::fs::write(bench.button(), "1\n").unwrap();
    bench.tape.until(|t| t.has("gpio.edge", &json!({"pin": "button", "value": true}))).await;
    assert!(bench.pin("button").await.value);
    std::fs::write(bench.button(), "0\n").unwrap();
    bench.tape.until(|t| t.has("gpio.edge", &json!({"pin": "button", "value": false}))).await;
    cancel.cancel();
    recording.await.unwrap();
}

#[tokio::test]
async fn an_active_low_input_is_on_at_level_0() {
    let bench = bench("simulate = true\n[[pin]]\nid = 'button'\ndirection = 'input'\nactive_low = true");
    assert!(!bench.pin("button").await.value);
    std::fs::write(bench.button(), "0").unwrap();
    assert!(bench.pin("button").await.value);
    std::fs::write(bench.button(), "maybe").unwrap();
    assert_eq!(bench.code("gpio.read", json!({"pin": "button"})).await.0, ErrorCode::Hardware);
}

#[tokio::test]
async fn sensors_are_recorded_by_their_interval_and_new_ones_survive_a_restart() {
    let bench = bench(
        "simulate = true\n[[sensor]]\nid = 'a'\ninterval_ms = 0\n[[sensor]]\nid = 'b'\ninterval_ms = 100",
    );
    let (cancel, board) = (CancellationToken::new(), bench.board.clone());
    let recording = tokio::spawn({
        let cancel = cancel.clone();
        async move { board.record(cancel).await }
    });
    let count = |t: &Tape, id: &str| t.readings.lock().unwrap().iter().filter(|(s, _)| s == id).count();
    bench.tape.until(|t| count(t, "b") >= 2).await;
    assert_eq!(count(&bench.tape, "a"), 0);
    let info = bench.ok("sensor.subscribe", json!({"sensor": "a", "intervalMs": 100})).await;
    assert_eq!(info["intervalMs"], 100);
    bench.tape.until(|t| count(t, "a") >= 2).await;
    bench.ok("sensor.subscribe", json!({"sensor": "b", "intervalMs": 0})).await;
    cancel.cancel();
    recording.await.unwrap();

    let config = toml::from_str("simulate = true\n[[sensor]]\nid = 'a'\n[[sensor]]\nid = 'b'").unwrap();
    let board = Board::open(&config, "garage", bench.home.path(), bench.tape.clone()).unwrap();
    let again = Bench { board, ..bench };
    let list = again.ok("sensor.list", json!({})).await;
    assert_eq!(
        (&list["sensors"][0]["intervalMs"], &list["sensors"][1]["intervalMs"]),
        (&json!(100), &json!(0))
    );
}

#[tokio::test]
async fn a_sensor_that_fails_is_reported_once_and_delays_no_other() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "broken").unwrap();
    let path = file.path().display();
    let bench = bench(&format!(
        "discover = false\n[[sensor]]\nid = 'bad'\nquantity = 'temperature'\npath = '{path}'\nscale = 0.001\ninterval_ms = 100\n\
         [[sensor]]\nid = 'good'\ndriver = 'simulated'\ninterval_ms = 100"
    ));
    let (cancel, board) = (CancellationToken::new(), bench.board.clone());
    let recording = tokio::spawn({
        let cancel = cancel.clone();
        async move { board.record(cancel).await }
    });
    bench.tape.until(|t| t.readings.lock().unwrap().len() >= 3).await;
    let failures = |t: &Tape, kind: &str| t.events.lock().unwrap().iter().filter(|(k, _)| k == kind).count();
    assert_eq!(failures(&bench.tape, "sensor.failed"), 1);
    std::fs::write(file.path(), "21187\n").unwrap();
    bench.tape.until(|t| t.readings.lock().unwrap().contains(&("bad".into(), 21.187))).await;
    assert_eq!(failures(&bench.tape, "sensor.recovered"), 1);
    cancel.cancel();
    recording.await.unwrap();
}

#[tokio::test]
async fn a_sensor_that_hangs_holds_up_no_other() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = tempfile::tempdir().unwrap();
    // Nobody writes into it, so opening it waits for ever.
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let bench = bench(&format!(
        "discover = false\n[[sensor]]\nid = 'hung'\npath = '{}'\ninterval_ms = 100\n\
         [[sensor]]\nid = 'good'\ndriver = 'simulated'\ninterval_ms = 100",
        pipe.display()
    ));
    let (cancel, board) = (CancellationToken::new(), bench.board.clone());
    let recording = tokio::spawn({
        let cancel = cancel.clone();
        async move { board.record(cancel).await }
    });
    bench.tape.until(|t| t.readings.lock().unwrap().len() >= 5).await;
    assert!(bench.tape.readings.lock().unwrap().iter().all(|(sensor, _)| sensor == "good"));
    cancel.cancel();
    recording.await.unwrap();
    // Lets the waiting thread go, for the runtime waits for it.
    let mut writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    std::io::Write::write_all(&mut writer, b"1\n").unwrap();
}

#[tokio::test]
async fn only_what_works_is_declared() {
    let empty = tempfile::tempdir().unwrap();
    let bench = bench_under(empty.path(), "run = false\nnotify = false").unwrap();
    assert_eq!(bench.board.inventory().commands, ["system.info", "system.which"]);
    let (code, message) = bench.code("system.run", json!({"command": ["ls"]})).await;
    assert_eq!(code, ErrorCode::Denied);
    assert!(message.contains("node.toml"), "{message}");
    assert_eq!(bench.code("system.notify", json!({"title": "x"})).await.0, ErrorCode::Hardware);

    let error = bench_under(empty.path(), "[[camera]]\nid = 'front'").err().unwrap();
    assert!(error.message.contains("front") && error.message.contains("simulate"), "{error}");
    let error = bench_under(empty.path(), "[[sensor]]\nid = 'lost'").err().unwrap();
    assert!(error.message.contains("lost") && error.message.contains("none"), "{error}");
}

#[tokio::test]
async fn found_sensors_are_read_and_can_be_renamed() {
    let root = tempfile::tempdir().unwrap();
    let zone = root.path().join("sys/class/thermal/thermal_zone0");
    std::fs::create_dir_all(&zone).unwrap();
    std::fs::write(zone.join("type"), "cpu-thermal\n").unwrap();
    std::fs::write(zone.join("temp"), "48312\n").unwrap();
    let bench = bench_under(root.path(), "").unwrap();
    let list = bench.ok("sensor.list", json!({})).await;
    assert_eq!(
        list["sensors"],
        json!([{"id": "cpu-thermal", "name": "processor", "quantity": "temperature", "unit": "°C", "intervalMs": 60_000}])
    );
    let read = bench.ok("sensor.read", json!({"sensor": "cpu-thermal"})).await;
    assert_eq!(read, json!({"sensor": "cpu-thermal", "value": 48.312, "unit": "°C"}));
    assert!(bench.board.inventory().commands.contains(&"sensor.read"));

    let renamed = "[[sensor]]\nid = 'cpu-thermal'\nname = 'chip'\ninterval_ms = 0";
    let bench = bench_under(root.path(), renamed).unwrap();
    let list = bench.ok("sensor.list", json!({})).await;
    assert_eq!((&list["sensors"][0]["name"], &list["sensors"][0]["intervalMs"]), (&json!("chip"), &json!(0)));
    let error = bench_under(root.path(), "[[sensor]]\nid = 'lost'").err().unwrap();
    assert!(error.message.contains("cpu-thermal"), "{error}");
}
