//! Which program a command line means on this machine, down to its bytes, and who could change them.

use super::TRUSTED_PATH;
use super::process::environment;
use crate::capability::Ready;
use hearth_shared::command::system::RunParams;
use hearth_shared::error::{CommandError, ErrorCode};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Paths that are named in the facts as changeable; more are not told.
const MAX_CHANGEABLE: usize = 8;

/// Finds a bare name on the trusted path.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let candidates = TRUSTED_PATH.split(':').map(|folder| Path::new(folder).join(name));
    candidates.filter(|path| path.is_file()).find(|path| may(path, Access::EXEC_OK))
}

fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// The path by which the kernel knows an open file.
pub(super) fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens and hashes the program and collects what a person should see. Blocking.
///
/// # Errors
/// `NOT_FOUND` for a missing program or folder, `INVALID_PARAMS` for what is no program, `DENIED` for
/// one that the node's user may not run or read.
pub(super) fn plan(params: &RunParams) -> Result<Ready, CommandError> {
    let name = params.command.first().map_or("", String::as_str);
    let error = |code, what: &str| CommandError::new(code, format!("program {name:?} {what}"));
    let asked = if name.starts_with('/') { Some(PathBuf::from(name)) } else { find(name) };
    let asked = asked.ok_or_else(|| {
        let what = format!("is not in {TRUSTED_PATH}; install it, or give its absolute path");
        error(ErrorCode::NotFound, &what)
    })?;
    let executable = open(&asked).map_err(|e| match e {
        rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => {
            error(ErrorCode::Denied, "cannot be read by the node's user, so it cannot be hashed")
        }
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => error(ErrorCode::NotFound, "does not exist"),
        other => error(ErrorCode::Hardware, &format!("cannot be opened: {other}")),
    })?;
    let io = |e: std::io::Error| error(ErrorCode::Hardware, &format!("cannot be read: {e}"));
    if !executable.metadata().map_err(io)?.is_file() {
        return Err(error(ErrorCode::InvalidParams, "is not a file"));
    }
    // Asked of the descriptor, not of the name: links may have been changed since it was opened.
    let path = std::fs::read_link(descriptor_path(&executable)).map_err(io)?;
    if !may(&path, Access::EXEC_OK) {
        return Err(error(ErrorCode::Denied, "is not executable for the node's user (chmod +x)"));
    }
    let (sha256, start) = hash(&executable).map_err(io)?;
    let interpreter = start.strip_prefix(b"#!").map(|line| {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).trim().to_string()
    });
    if interpreter.is_none() && !start.starts_with(b"\x7fELF") {
        let what = "is neither an ELF program nor a `#!` script; run it with its interpreter";
        return Err(error(ErrorCode::InvalidParams, what));
    }
    let cwd = folder(params.cwd.as_deref().unwrap_or("/"))?;
    let changeable = changeable_parts(&path, &cwd, params);
    let mut env = environment();
    env.extend(params.env.clone());
    let mut facts = json!({
        "path": text(&path)?,
        "sha256": sha256,
        "argv": params.command,
        "cwd": text(&cwd)?,
        "env": env,
        "script": interpreter.is_some(),
        "writableByNode": !changeable.is_empty(),
    });
    if let Some(interpreter) = &interpreter {
        facts["interpreter"] = interpreter.as_str().into();
    }
    if !changeable.is_empty() {
        facts["writable"] = changeable.clone().into();
    }
    let always_possible = interpreter.is_none() && changeable.is_empty();
    Ok(Ready { facts, always_possible, executable: Some(executable) })
}

/// Without waiting at pipes or devices.
pub(super) fn open(path: &Path) -> Result<File, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// SHA-256 in hexadecimal, and the first bytes.
pub(super) fn hash(file: &File) -> std::io::Result<(String, Vec<u8>)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut start = Vec::new();
    let mut offset = 0;
    loop {
        let n = file.read_at(&mut buffer, offset)?;
        let read = buffer.get(..n).unwrap_or_default();
        if n == 0 {
            return Ok((hex::encode(hasher.finalize()), start));
        }
        if offset == 0 {
            start = read.get(..n.min(256)).unwrap_or_default().to_vec();
        }
        hasher.update(read);
        offset += n as u64;
    }
}

/// The real path of a working directory.
fn folder(path: &str) -> Result<PathBuf, CommandError> {
    let real = std::fs::canonicalize(path).ok().filter(|p| p.is_dir());
    real.ok_or_else(|| {
        CommandError::new(ErrorCode::NotFound, format!("cwd {path:?} is no folder on this node"))
    })
}

/// Text is what is shown, signed and compared, so a path must be text.
fn text(path: &Path) -> Result<&str, CommandError> {
    path.to_str().ok_or_else(|| {
        CommandError::new(
            ErrorCode::InvalidParams,
            format!("path {path:?} is not UTF-8; such paths cannot be shown"),
        )
    })
}

/// What the node's user, and so any program that ran before, could change to make the same command
/// line do something else: the program, its working directory, files named in arguments and variables,
/// and the folders above each. What is not there yet could be made where its folder is writable.
fn changeable_parts(path: &Path, cwd: &Path, params: &RunParams) -> Vec<String> {
    let words = params.command.iter().skip(1).chain(params.env.values());
    let named = words.flat_map(|word| {
        // `--config=x` and `-I/tmp/x` name files too.
        let value = word.split_once('=').map(|(_, value)| value);
        let glued = word.find('/').and_then(|at| word.get(at..));
        [Some(word.as_str()), value, glued].into_iter().flatten().map(|file| cwd.join(file))
    });
    let parts = [path.to_path_buf(), cwd.to_path_buf()].into_iter().chain(named);
    let mut found: Vec<String> = parts
        .flat_map(|part| names(&part))
        .filter(|file| !is_device(file))
        .filter(|file| changeable(file))
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found.dedup();
    found.truncate(MAX_CHANGEABLE);
    found
}

/// The names by which a file, or the lowest folder above it that exists, is reached: as it was given,
/// each link on the way, and the real one. Whoever can change a link changes what it leads to.
fn names(part: &Path) -> Vec<PathBuf> {
    let Some(existing) = part.ancestors().find(|name| name.symlink_metadata().is_ok()) else {
        return Vec::new();
    };
    let mut names = vec![existing.to_path_buf()];
    let mut name = existing.to_path_buf();
    // As many links as the kernel follows.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&name) else { break };
        name = name.parent().unwrap_or(Path::new("/")).join(target);
        names.push(name.clone());
    }
    names.extend(std::fs::canonicalize(existing));
    names
}

/// `/dev/null` is writable for all, and holds nothing that could be changed.
fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_char_device())
}

/// Whether the node's user could change a file or a folder above it. As root it could change
/// everything; then the question is whether anybody but root could.
fn changeable(path: &Path) -> bool {
    let user = rustix::process::geteuid();
    path.ancestors().any(|part| match part.metadata() {
        Ok(meta) if user.is_root() => meta.uid() != 0 || meta.mode() & 0o022 != 0,
        // An owner can give himself the right to write.
        Ok(meta) => meta.uid() == user.as_raw() || may(part, Access::WRITE_OK),
        Err(_) => true,
    })
}
