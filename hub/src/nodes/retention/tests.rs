use super::*;
use crate::config::Config;
use crate::nodes::tests::tester::{Hub, Node, request};

async fn sensor(hub: &Hub, id: DeviceId) {
    hub.store
        .write(move |t| {
            t.execute("INSERT INTO sensors (id, device, name) VALUES (1, ?1, 'temp')", [id.0])?;
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_too_old_goes_in_small_steps_and_the_rest_stays() {
    let hub = Hub::start().await;
    let node = Node::new(1, "garage");
    let _socket = hub.paired(&node).await;
    let id = node.key.device_id();
    sensor(&hub, id).await;
    let now = now_ms() as i64;
    hub.store
        .write(move |t| {
            for (n, age_days) in [(12_000, 20), (10, 0), (10, 400)] {
                for i in 0..n {
                    let at_ms = now - i64::from(age_days) * DAY_MS + i;
                    let seq = (age_days * 100_000 + i as i32) as u64;
                    let raw = super::super::readings::Raw {
                        sensor: 1,
                        at_ms,
                        epoch: 1,
                        seq,
                        value: 1.0,
                        boot: 1,
                        source: 1,
                    };
                    super::super::readings::insert(t, &raw)?;
                }
            }
            t.execute(
                "INSERT INTO node_events (device, epoch, seq, kind, json, boot, mono_ms, received_ms) \
                 VALUES (?1, 1, 1, 'old', '{}', 1, 0, ?2), (?1, 1, 2, 'new', '{}', 1, 0, ?3)",
                params![id.0, now - 100 * DAY_MS, now],
            )?;
            Ok(())
        })
        .await
        .unwrap();
    hub.nodes.clean_up().await;
    let usage = hub.nodes.usage().await.unwrap();
    assert_eq!((usage.readings, usage.events), (10, 1));
    assert!(usage.readings_oldest_ms.unwrap() >= now as u64);
    assert!(usage.summaries >= 2, "the year of summaries stays");
    assert!(usage.summaries_oldest_ms.unwrap() > (now - 365 * DAY_MS) as u64);
}

#[tokio::test]
async fn the_oldest_pictures_go_when_the_budget_is_spent() {
    let mut config = Config::default();
    config.retention.media_mb = 1;
    let hub = Hub::build(std::time::Duration::from_secs(30), config).await;
    let id = Node::new(1, "garage").key.device_id();
    let mut paths = Vec::new();
    for n in 0..4u8 {
        let media = hub.nodes.media().put(id, request(n), "image/jpeg", &[n; 400_000]).await.unwrap();
        paths.push(media.path);
    }
    let error = hub.nodes.media().put(id, request(9), "image/jpeg", &vec![0; 2_000_000]).await.unwrap_err();
    assert!(matches!(error, crate::nodes::media::MediaError::OverBudget { .. }), "{error}");
    hub.nodes.clean_up().await;
    let there: Vec<_> = paths.iter().map(|p| p.exists()).collect();
    assert_eq!(there, [false, false, true, true]);
    let kept = hub.nodes.media().recent(id, 10).await.unwrap();
    assert_eq!(
        kept.iter().map(|m| m.media.path.clone()).collect::<Vec<_>>(),
        [paths[3].clone(), paths[2].clone()]
    );
    assert_eq!(hub.nodes.usage().await.unwrap().media_bytes, 800_000);
}

#[tokio::test]
async fn leftovers_of_a_crash_go_and_other_files_stay() {
    let hub = Hub::start().await;
    let dir = hub.nodes.media().dir().to_owned();
    let old = std::time::SystemTime::now() - 2 * EVERY;
    let stray = format!("{}.part", "ab".repeat(16));
    for name in [stray.as_str(), "notes.txt", &format!("{}.jpg", "cd".repeat(16))] {
        let file = std::fs::File::create(dir.join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let young = format!("{}.part", "ef".repeat(16));
    std::fs::File::create(dir.join(&young)).unwrap();
    hub.nodes.clean_up().await;
    let mut left: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [young, "notes.txt".to_string()]);
}
