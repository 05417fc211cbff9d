use super::*;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

async fn open(root: &std::path::Path) -> Sessions {
    let home = Home::locate(Some(root));
    home.create().unwrap();
    let store = Store::open(&home.database()).unwrap();
    Sessions::open(home, store).await.unwrap()
}

fn message(id: &str, text: &str) -> Message {
    Message {
        id: id.into(),
        role: "user".into(),
        content: text.into(),
        timestamp: 1,
        run_id: Some("r".into()),
        ..Message::default()
    }
}

fn only_file(root: &std::path::Path) -> PathBuf {
    let directory = Home::locate(Some(root)).sessions("main");
    std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test]
async fn pages_are_the_same_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let sessions = open(root.path()).await;
    for i in 0..10 {
        sessions
            .append("agent:main:main", message(&format!("m{i}"), &format!("line {i}\nsecond")))
            .await
            .unwrap();
    }
    let again = open(root.path()).await;
    for sessions in [sessions, again] {
        let (page, total) = sessions.history("agent:main:main", 3, 2).await.unwrap();
        assert_eq!(total, 10);
        let ids: Vec<&str> = page.iter().map(|m| m.id.as_str()).collect();
        assert_eq!(ids, ["m5", "m6", "m7"]);
        assert_eq!(page[0].parent_id.as_deref(), Some("m4"));
        assert_eq!(sessions.history("agent:main:main", 100, 0).await.unwrap().0.len(), 10);
        assert!(sessions.history("agent:main:main", 5, 10).await.unwrap().0.is_empty());
        let list = sessions.list().await.unwrap();
        assert_eq!((list.len(), list[0].messages, list[0].kind.as_str()), (1, 10, "main"));
        assert_eq!(list[0].last_run_id.as_deref(), Some("r"));
    }
    let mode = std::fs::metadata(only_file(root.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_torn_last_line_is_set_aside_at_every_length() {
    let root = tempfile::tempdir().unwrap();
    let sessions = open(root.path()).await;
    sessions.append("agent:main:main", message("a", "whole")).await.unwrap();
    let path = only_file(root.path());
    let whole = std::fs::read(&path).unwrap();
    let line = serde_json::to_vec(&message("b", "torn")).unwrap();
    for cut in 1..=line.len() {
        std::fs::write(&path, &whole).unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&line[..cut]).unwrap();
        let sessions = open(root.path()).await;
        let complete = cut == line.len();
        let (_, total) = sessions.history("agent:main:main", 9, 0).await.unwrap();
        assert_eq!(total, if complete { 2 } else { 1 }, "cut at {cut}");
        sessions.append("agent:main:main", message("c", "after")).await.unwrap();
        let (page, _) = open(root.path()).await.history("agent:main:main", 1, 0).await.unwrap();
        assert_eq!(page[0].id, "c");
        assert_eq!(page[0].parent_id.as_deref(), Some(if complete { "b" } else { "a" }));
    }
    let directory = Home::locate(Some(root.path())).sessions("main");
    let aside = std::fs::read_dir(directory).unwrap().filter(|e| {
        e.as_ref().unwrap().path().extension().is_some_and(|x| x.to_string_lossy().starts_with("torn-"))
    });
    assert!(aside.count() > 0);
}

#[tokio::test]
async fn a_reset_starts_an_empty_transcript_and_keeps_the_old_file() {
    let root = tempfile::tempdir().unwrap();
    let sessions = open(root.path()).await;
    sessions.append("agent:main:main", message("a", "old")).await.unwrap();
    sessions.reset("agent:main:main").await.unwrap();
    assert_eq!(sessions.history("agent:main:main", 9, 0).await.unwrap().1, 0);
    sessions.append("agent:main:main", message("b", "new")).await.unwrap();
    let again = open(root.path()).await;
    assert_eq!(again.history("agent:main:main", 9, 0).await.unwrap().0[0].id, "b");
    let directory = Home::locate(Some(root.path())).sessions("main");
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 2);
}
