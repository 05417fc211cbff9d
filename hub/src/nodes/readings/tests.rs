use super::*;
use crate::store::now_ms;
use proptest::prelude::*;

const NODE: DeviceId = DeviceId([1; 32]);

async fn readings() -> (Readings, Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("hub.db")).unwrap();
    store
        .write(|t| {
            t.execute(
                "INSERT INTO devices (id, key, name, roles, kind, state, platform, device_family, client_id, \
                 client_mode, scopes, surface, approved_via, created_ms, approved_ms) \
                 VALUES (?1, ?1, 'n', 'node', 'hearth', 'accepted', '', '', '', '', '', '[]', 'code', 0, 0)",
                [NODE.0],
            )?;
            t.execute("INSERT INTO sensors (id, device, name) VALUES (1, ?1, 'temp')", [NODE.0])?;
            Ok(())
        })
        .await
        .unwrap();
    (Readings::new(store.clone()), store, dir)
}

async fn put(store: &Store, values: Vec<(i64, f64)>) {
    store
        .write(move |t| {
            for (seq, (at_ms, value)) in values.into_iter().enumerate() {
                let raw = Raw { sensor: 1, at_ms, epoch: 1, seq: seq as u64, value, boot: 1, source: 1 };
                insert(t, &raw)?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Summaries and edges together say the same as all values one by one, also when values come late.
    #[test]
    fn stats_equal_those_of_the_values(
        values in proptest::collection::vec((0i64..4_000_000, -50.0f64..50.0), 1..60),
        from in 0i64..4_000_000,
        len in 1i64..4_000_000,
    ) {
        let to = from + len;
        let runtime = runtime();
        let got = runtime.block_on(async {
            let (readings, store, _dir) = readings().await;
            put(&store, values.clone()).await;
            readings.stats(NODE, "temp", from as u64, to as u64).await.unwrap()
        });
        let inside: Vec<_> = values.iter().filter(|(at, _)| (from..to).contains(at)).collect();
        match got {
            None => prop_assert!(inside.is_empty()),
            Some(stats) => {
                prop_assert_eq!(stats.count as usize, inside.len());
                let fold = |f: fn(f64, f64) -> f64| inside.iter().map(|(_, v)| *v).reduce(f).unwrap();
                prop_assert_eq!(stats.min, fold(f64::min));
                prop_assert_eq!(stats.max, fold(f64::max));
                let mean = inside.iter().map(|(_, v)| v).sum::<f64>() / inside.len() as f64;
                prop_assert!((stats.mean - mean).abs() < 1e-9);
                let last_at = inside.iter().map(|(at, _)| *at).max().unwrap();
                prop_assert_eq!(stats.last_at, last_at as u64);
                prop_assert!(inside.iter().any(|(at, v)| *at as u64 == stats.min_at && *v == stats.min));
                prop_assert!(inside.iter().any(|(at, v)| *at as u64 == stats.max_at && *v == stats.max));
            }
        }
    }

    /// A clock that was wrong by any amount leaves the same history as one that was right.
    #[test]
    fn moved_readings_leave_the_summaries_of_their_new_times(
        values in proptest::collection::vec((5_000_000i64..9_000_000, -50.0f64..50.0), 1..40),
        delta in -4_000_000i64..4_000_000,
    ) {
        let runtime = runtime();
        let (moved, direct) = runtime.block_on(async {
            let (readings, store, _a) = readings().await;
            put(&store, values.clone()).await;
            store.write(move |t| redate(t, 1, 1, delta, 1)).await.unwrap();
            let (other, other_store, _b) = self::readings().await;
            put(&other_store, values.iter().map(|(at, v)| (at + delta, *v)).collect()).await;
            (dump(&store).await, (dump(&other_store).await, drop((readings, other))).0)
        });
        prop_assert_eq!(moved, direct);
    }
}

/// Every summary, rounded: sums depend on the order of adding.
async fn dump(store: &Store) -> Vec<(i64, i64, i64, String, String)> {
    store
        .read(|c| {
            let mut statement =
                c.prepare("SELECT bucket, count, last_at, min, max FROM summaries ORDER BY bucket")?;
            let rows = statement.query_map([], |r| {
                let text = |v: f64| format!("{v:.6}");
                Ok((r.get(0)?, r.get(1)?, r.get(2)?, text(r.get(3)?), text(r.get(4)?)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_series_is_merged_to_its_limit_and_keeps_extremes() {
    let (readings, store, _dir) = readings().await;
    let now = now_ms() as i64;
    put(&store, (0..1_000).map(|i| (now + i * 1_000, if i == 500 { 99.0 } else { 1.0 })).collect()).await;
    let points = readings.series(NODE, "temp", 0, u64::MAX, 50).await.unwrap();
    assert!(points.len() <= 50, "{}", points.len());
    assert!(points.windows(2).all(|w| w[0].at < w[1].at));
    assert_eq!(points.iter().map(|p| p.max).fold(0.0, f64::max), 99.0);
    let all = readings.series(NODE, "temp", 0, u64::MAX, 5_000).await.unwrap();
    assert_eq!(all.len(), 1_000);
    assert_eq!(all[500], Point { at: (now + 500_000) as u64, value: 99.0, min: 99.0, max: 99.0 });
    assert_eq!(readings.series(NODE, "none", 0, u64::MAX, 10).await.unwrap(), []);
}

#[tokio::test]
async fn summaries_stand_in_for_raw_readings_that_are_gone() {
    let (readings, store, _dir) = readings().await;
    put(&store, (0..20).map(|i| (i * 60_000, i as f64)).collect()).await;
    forget_raw(&store, 2 * BUCKET_MS).await;
    let points = readings.series(NODE, "temp", 0, u64::MAX, 100).await.unwrap();
    assert_eq!(points.len(), 2 + 10);
    assert_eq!((points[0].min, points[0].max, points[0].value), (0.0, 4.0, 2.0));
    assert_eq!(points[2].value, 10.0);
    let stats = readings.stats(NODE, "temp", 0, u64::MAX).await.unwrap().unwrap();
    assert_eq!((stats.count, stats.min, stats.max, stats.mean), (20, 0.0, 19.0, 9.5));
}

/// As retention does.
async fn forget_raw(store: &Store, before: i64) {
    store
        .write(move |t| {
            keep_raw_from(t, 1, before)?;
            Ok(t.execute("DELETE FROM readings WHERE at_ms < ?1", [before])?)
        })
        .await
        .unwrap();
}

/// Everything, page by page.
async fn pages(readings: &Readings, from: u64, to: u64, limit: usize) -> Vec<Point> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (points, next) = readings.page(NODE, "temp", from, to, after, limit).await.unwrap();
        assert!(points.len() <= limit);
        all.extend(points);
        match next {
            Some(cursor) => after = Some(cursor.to_string().parse().unwrap()),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_hold_every_value_once_across_the_end_of_the_raw_readings() {
    let (readings, store, _dir) = readings().await;
    // Every 20 s; two values share each millisecond.
    put(&store, (0..200).map(|i| (i / 2 * 20_000, f64::from(i as i32))).collect()).await;
    forget_raw(&store, 2 * BUCKET_MS).await;
    let all = pages(&readings, 0, u64::MAX, 1_000).await;
    assert_eq!(all.len(), 2 + 140, "two summaries, then every raw value");
    assert_eq!((all[0].min, all[0].max, all[1].min, all[1].max), (0.0, 29.0, 30.0, 59.0));
    assert_eq!(all[2].value, 60.0);
    for limit in [1, 2, 3, 7, 141, 142] {
        assert_eq!(pages(&readings, 0, u64::MAX, limit).await, all, "pages of {limit}");
    }
    let (from, to) = (2 * BUCKET_MS as u64 + 40_000, 3 * BUCKET_MS as u64);
    let some = pages(&readings, from, to, 5).await;
    assert_eq!((some.len(), some[0].at, some.last().unwrap().at), (26, from, to - 20_000));
    assert!("7.x.1".parse::<Cursor>().is_err() && "7".parse::<Cursor>().is_err());
}

#[tokio::test]
async fn a_reading_older_than_what_is_kept_raw_changes_only_its_summary() {
    let (readings, store, _dir) = readings().await;
    put(&store, (0..30).map(|i| (i * 60_000, 1.0)).collect()).await;
    forget_raw(&store, 4 * BUCKET_MS).await;
    // A node that was away hands it over now.
    store
        .write(|t| {
            insert(t, &Raw { sensor: 1, at_ms: 30_000, epoch: 2, seq: 1, value: 8.0, boot: 1, source: 1 })
        })
        .await
        .unwrap();
    let stats = readings.stats(NODE, "temp", 0, u64::MAX).await.unwrap().unwrap();
    assert_eq!((stats.count, stats.min, stats.max, stats.max_at), (31, 1.0, 8.0, 30_000));
    let points = readings.series(NODE, "temp", 0, u64::MAX, 100).await.unwrap();
    assert_eq!(points.len(), 4 + 10, "the five minutes of the late value are whole");
    assert_eq!((points[0].max, points[1].max), (8.0, 1.0));
}
