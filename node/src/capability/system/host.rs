//! A board's health, read from `/proc` and `/sys`.

use super::process::{self, Launch};
use super::program;
use crate::capability::sensor::sysfs::{self, entries, read_line};
use hearth_shared::command::sensor::Quantity;
use hearth_shared::command::system::InfoResult;
use hearth_shared::error::CommandError;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1024 * 1024;
/// A Raspberry Pi slows down from 80 °C.
const HOT_C: f64 = 80.0;
/// 2025-01-01: before it a clock was never set.
const CLOCK_UNSET_BEFORE_S: u64 = 1_735_689_600;

/// Where to look: `/` but for tests, and the folder whose file system may fill.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) root: PathBuf,
    pub(super) state_dir: PathBuf,
}

impl Host {
    fn line(&self, path: &str) -> Option<String> {
        read_line(&self.root.join(path)).ok().filter(|line| !line.is_empty())
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Board model from the device tree, or the vendor's and product's names of a PC.
    pub(super) fn model(&self) -> Option<String> {
        self.line("proc/device-tree/model").or_else(|| {
            let part = |name: &str| self.line(&format!("sys/class/dmi/id/{name}"));
            let parts: Vec<String> =
                [part("sys_vendor"), part("product_name")].into_iter().flatten().collect();
            (!parts.is_empty()).then(|| parts.join(" "))
        })
    }

    /// Whether a time service set the clock: the mark of systemd-timesyncd, or what the system's time
    /// daemon says.
    pub(super) async fn clock_synchronized(&self) -> bool {
        if self.root.join("run/systemd/timesync/synchronized").exists() {
            return true;
        }
        if self.root != Path::new("/") {
            return false;
        }
        let Some(timedatectl) = program::find("timedatectl") else { return false };
        let args = ["show", "--property=NTPSynchronized", "--value"].map(String::from);
        let launch = Launch::tool(timedatectl, args.to_vec());
        let ended = process::run(launch, Duration::from_secs(2), &CancellationToken::new()).await;
        ended.is_ok_and(|ended| ended.out.bytes().starts_with(b"yes"))
    }

    /// Everything but the clock, which has to be asked for elsewhere.
    pub(super) fn report(&self, clock_synchronized: bool) -> Result<InfoResult, CommandError> {
        let memory = self.text("proc/meminfo");
        let (disk_total_bytes, disk_available_bytes) = self.disk();
        let (under_voltage, throttled) = self.power();
        let kernel = ["ostype", "osrelease"].map(|name| self.line(&format!("proc/sys/kernel/{name}")));
        let mut info = InfoResult {
            hostname: self.line("proc/sys/kernel/hostname").unwrap_or_default(),
            model: self.model(),
            kernel: kernel.into_iter().flatten().collect::<Vec<_>>().join(" "),
            arch: std::env::consts::ARCH.into(),
            uptime_s: first_number(&self.text("proc/uptime")),
            load: self.load(),
            cpus: self.cpus(),
            memory_total_bytes: kilobytes(&memory, "MemTotal:"),
            memory_available_bytes: kilobytes(&memory, "MemAvailable:"),
            disk_total_bytes,
            disk_available_bytes,
            cpu_temperature_c: self.cpu_temperature(),
            under_voltage,
            throttled,
            wifi_signal_dbm: wifi_signal(&self.text("proc/net/wireless")),
            root_read_only: root_read_only(&self.text("proc/mounts")),
            clock_synchronized,
            version: env!("CARGO_PKG_VERSION").into(),
            warnings: Vec::new(),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        info.warnings = warnings(&info, now.as_secs());
        Ok(info)
    }

    fn load(&self) -> [f64; 3] {
        let text = self.text("proc/loadavg");
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        std::array::from_fn(|_| numbers.next().unwrap_or(0.0))
    }

    fn cpus(&self) -> u32 {
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        u32::try_from(self.text("proc/stat").lines().filter(is_cpu).count()).unwrap_or(u32::MAX)
    }

    fn disk(&self) -> (u64, u64) {
        match rustix::fs::statvfs(&self.state_dir) {
            Ok(stat) => {
                (stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize))
            }
            Err(error) => {
                tracing::warn!(path = %self.state_dir.display(), %error, "space on the card is not known");
                (0, 0)
            }
        }
    }

    fn cpu_temperature(&self) -> Option<f64> {
        let found = sysfs::discover(&self.root);
        let of_cpu = |f: &&sysfs::Found| {
            f.quantity == Quantity::Temperature
                && (f.name == "processor"
                    || ["coretemp", "k10temp", "cpu"].iter().any(|chip| f.id.starts_with(chip)))
        };
        let sensor = found.iter().find(of_cpu)?;
        let text = read_line(&sensor.path).ok()?;
        text.parse::<f64>().ok().map(|number| number * sensor.scale)
    }

    /// Under-voltage and throttling as a Raspberry Pi's firmware tells them: bits 0 and 2 are "now".
    fn power(&self) -> (Option<bool>, Option<bool>) {
        let named = |folder: &Path, test: fn(&str) -> bool| {
            let found = entries(folder).into_iter();
            found.filter(move |p| p.file_name().is_some_and(|n| test(&n.to_string_lossy())))
        };
        let bits = named(&self.root.join("sys/devices/platform"), |name| name.starts_with("soc"))
            .flat_map(|soc| named(&soc, |name| name.ends_with("firmware")))
            .find_map(|firmware| {
                let text = read_line(&firmware.join("get_throttled")).ok()?;
                u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
            });
        let alarm = entries(&self.root.join("sys/class/hwmon"))
            .into_iter()
            .filter(|chip| read_line(&chip.join("name")).is_ok_and(|name| name == "rpi_volt"))
            .find_map(|chip| Some(read_line(&chip.join("in0_lcrit_alarm")).ok()? == "1"));
        let under_voltage = match (bits.map(|b| b & 1 != 0), alarm) {
            (None, None) => None,
            (firmware, alarm) => Some(firmware.unwrap_or(false) || alarm.unwrap_or(false)),
        };
        (under_voltage, bits.map(|b| b & 0b100 != 0))
    }
}

fn first_number(text: &str) -> u64 {
    text.split(['.', ' ']).next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn kilobytes(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok());
    number.unwrap_or(0_u64).saturating_mul(1024)
}

/// The best signal of all interfaces. Columns: name, status, link, level, noise, …
fn wifi_signal(wireless: &str) -> Option<i32> {
    let level = |line: &str| {
        let (_, columns) = line.split_once(':')?;
        let level: f64 = columns.split_whitespace().nth(2)?.parse().ok()?;
        // Drivers without a dBm figure give a positive quality.
        #[expect(clippy::cast_possible_truncation)]
        (-200.0..0.0).contains(&level).then_some(level.round() as i32)
    };
    wireless.lines().filter_map(level).max()
}

fn root_read_only(mounts: &str) -> bool {
    let options = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let is_root = fields.next() == Some("/");
        fields.nth(1).filter(|_| is_root).map(|options| options.split(',').any(|o| o == "ro"))
    };
    mounts.lines().filter_map(options).next_back().unwrap_or(false)
}

fn warnings(info: &InfoResult, now_s: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if info.under_voltage == Some(true) {
        warnings.push(
            "The supply voltage is too low: use the board's own power supply and a short, thick cable, \
             and unplug USB devices that draw much."
                .into(),
        );
    }
    if info.throttled == Some(true) {
        warnings.push("The processor is slowed down: cool it, and check the power supply.".into());
    }
    if let Some(celsius) = info.cpu_temperature_c.filter(|c| *c >= HOT_C) {
        warnings.push(format!(
            "The processor is at {celsius:.0} °C (warning from {HOT_C:.0}): give it air or a heat sink."
        ));
    }
    if info.root_read_only {
        warnings.push(
            "The root file system is read-only, which is usual after card errors: look into `dmesg`, \
             back up, and replace the card if it says so. If you made it read-only, ignore this."
                .into(),
        );
    }
    let (total, free) = (info.disk_total_bytes, info.disk_available_bytes);
    if total > 0 && (free < 100 * MIB || (free < total / 20 && free < 2048 * MIB)) {
        warnings.push(format!(
            "The card is nearly full: {} MiB of {} MiB are free. Delete files, or use a larger card; \
             without space readings are lost while the hub is away.",
            free / MIB,
            total / MIB
        ));
    }
    if info.memory_total_bytes > 0 && info.memory_available_bytes < info.memory_total_bytes / 20 {
        warnings.push(format!(
            "Memory is low: {} MiB of {} MiB are left. Stop programs that the board does not need.",
            info.memory_available_bytes / MIB,
            info.memory_total_bytes / MIB
        ));
    }
    if now_s < CLOCK_UNSET_BEFORE_S && !info.clock_synchronized {
        warnings.push("The clock was never set: check the network, or that a time service runs.".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Raspberry Pi in trouble, as its files tell it.
    const PI: &[(&str, &str)] = &[
        ("proc/device-tree/model", "Raspberry Pi Zero 2 W Rev 1.0\0"),
        ("proc/sys/kernel/hostname", "garage\n"),
        ("proc/sys/kernel/ostype", "Linux\n"),
        ("proc/sys/kernel/osrelease", "6.12.25+rpt-rpi-v8\n"),
        ("proc/uptime", "5025.31 19000.02\n"),
        ("proc/loadavg", "0.52 0.58 0.59 1/123 4567\n"),
        ("proc/stat", "cpu  1 2 3\ncpu0 1 2\ncpu1 1 2\ncpu2 1 2\ncpu3 1 2\nintr 5\n"),
        (
            "proc/meminfo",
            "MemTotal:         431428 kB\nMemFree:           20000 kB\nMemAvailable:      15000 kB\n",
        ),
        (
            "proc/net/wireless",
            "Inter-| sta-|   Quality        |\n face | tus | link level noise |\n wlan0: 0000   54.  -56.  -256        0      0\n",
        ),
        ("proc/mounts", "/dev/root / ext4 ro,noatime 0 0\ntmpfs /run tmpfs rw 0 0\n"),
        ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "83214\n"),
        ("sys/devices/platform/soc/soc:firmware/get_throttled", "50005\n"),
        ("run/systemd/timesync/synchronized", ""),
    ];

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = Host { root: root.path().into(), state_dir: root.path().into() };
        (root, host)
    }

    #[tokio::test]
    async fn a_pi_in_trouble_says_what_to_do() {
        let (_root, host) = tree(PI);
        assert!(host.clock_synchronized().await);
        let info = host.report(true).unwrap();
        assert_eq!(info.model.as_deref(), Some("Raspberry Pi Zero 2 W Rev 1.0"));
        assert_eq!((info.hostname.as_str(), info.kernel.as_str()), ("garage", "Linux 6.12.25+rpt-rpi-v8"));
        assert_eq!((info.uptime_s, info.load, info.cpus), (5_025, [0.52, 0.58, 0.59], 4));
        assert_eq!((info.memory_total_bytes, info.memory_available_bytes), (431_428 * 1024, 15_000 * 1024));
        assert!(info.disk_total_bytes >= info.disk_available_bytes && info.disk_total_bytes > 0);
        assert_eq!(info.cpu_temperature_c, Some(83.214));
        assert_eq!((info.under_voltage, info.throttled), (Some(true), Some(true)));
        assert_eq!(info.wifi_signal_dbm, Some(-56));
        assert!(info.root_read_only);
        for word in ["voltage", "slowed down", "83 °C", "read-only", "Memory is low"] {
            assert!(info.warnings.iter().any(|w| w.contains(word)), "{word}: {:?}", info.warnings);
        }
    }

    #[tokio::test]
    async fn what_a_board_cannot_tell_is_left_out() {
        let (_root, host) = tree(&[("proc/mounts", "none / overlay rw 0 0\n")]);
        assert!(!host.clock_synchronized().await);
        let info = host.report(false).unwrap();
        assert_eq!((info.model, info.under_voltage, info.throttled), (None, None, None));
        assert_eq!((info.cpu_temperature_c, info.wifi_signal_dbm), (None, None));
        assert!(!info.root_read_only);
    }

    #[test]
    fn past_under_voltage_is_not_present_and_the_alarm_of_the_chip_counts() {
        let firmware = ("sys/devices/platform/soc/soc:firmware/get_throttled", "0x50000\n");
        let (_root, host) = tree(&[firmware]);
        assert_eq!(host.power(), (Some(false), Some(false)));
        let chip = [
            ("sys/class/hwmon/hwmon1/name", "rpi_volt\n"),
            ("sys/class/hwmon/hwmon1/in0_lcrit_alarm", "1\n"),
        ];
        let (_root, host) = tree(&chip);
        assert_eq!(host.power(), (Some(true), None));
    }

    #[test]
    fn a_card_warns_before_it_is_full() {
        let card = |free_mib: u64, total_mib: u64| InfoResult {
            disk_total_bytes: total_mib * MIB,
            disk_available_bytes: free_mib * MIB,
            ..InfoResult::default()
        };
        let warned = |info: &InfoResult| warnings(info, CLOCK_UNSET_BEFORE_S).len();
        assert_eq!(warned(&card(50, 1_000)), 1);
        assert_eq!(warned(&card(1_000, 32_000)), 1);
        assert_eq!(warned(&card(10_000, 32_000)), 0);
        // Five per cent of a large disk are plenty.
        assert_eq!(warned(&card(40_000, 1_000_000)), 0);
        assert_eq!(warnings(&InfoResult::default(), 10).len(), 1, "a clock of 1970 is told");
    }

    #[test]
    fn this_machine_has_a_health() {
        let host = Host { root: "/".into(), state_dir: std::env::temp_dir() };
        let info = host.report(false).unwrap();
        assert!(!info.hostname.is_empty() && info.kernel.starts_with("Linux"), "{info:?}");
        assert!(info.cpus > 0 && info.memory_total_bytes > info.memory_available_bytes);
    }
}
