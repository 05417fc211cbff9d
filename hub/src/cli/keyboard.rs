//! Lines from a person: an editor on a thread of its own, so that the socket is served meanwhile.

use super::error::Failure;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use std::sync::mpsc;
use tokio::sync::mpsc as queue;

/// What the person did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of a file.
    End,
}

/// Prompts and answers. One prompt is open at a time.
pub struct Keyboard {
    prompts: mpsc::Sender<Prompt>,
    lines: queue::Receiver<Line>,
    printer: Option<Box<dyn rustyline::ExternalPrinter + Send>>,
    open: bool,
}

struct Prompt {
    text: String,
    /// Answers to questions do not belong into the history of messages.
    remember: bool,
}

impl std::fmt::Debug for Keyboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyboard").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Keyboard {
    /// Takes the terminal (or the file that stands for it).
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn open() -> Result<Self, Failure> {
        let failed = |what: String| {
            Failure::failed(
                format!("the terminal cannot be used: {what}"),
                "say it in one line: `hearth chat TEXT`",
            )
        };
        let config = Config::builder().auto_add_history(false).build();
        let mut editor = DefaultEditor::with_config(config).map_err(|e| failed(e.to_string()))?;
        let printer = editor.create_external_printer().ok().map(|p| Box::new(p) as Box<_>);
        let (prompts, asked) = mpsc::channel::<Prompt>();
        let (answer, lines) = queue::channel(1);
        std::thread::Builder::new()
            .name("keyboard".into())
            .spawn(move || {
                while let Ok(prompt) = asked.recv() {
                    let line = match editor.readline(&prompt.text) {
                        Ok(text) => {
                            if prompt.remember && !text.trim().is_empty() {
                                let _ = editor.add_history_entry(text.as_str());
                            }
                            Line::Text(text)
                        }
                        Err(ReadlineError::Interrupted) => Line::Interrupted,
                        Err(_) => Line::End,
                    };
                    if answer.blocking_send(line).is_err() {
                        return;
                    }
                }
            })
            .map_err(|e| failed(e.to_string()))?;
        Ok(Self { prompts, lines, printer, open: false })
    }

    /// Shows a prompt; the answer comes from [`Keyboard::next`].
    pub fn prompt(&mut self, text: &str, remember: bool) {
        if !self.open {
            self.open = self.prompts.send(Prompt { text: text.into(), remember }).is_ok();
        }
    }

    /// Whether a prompt is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The answer to the open prompt. Pending for ever while none is open. Cancellation safe.
    pub async fn next(&mut self) -> Line {
        if !self.open {
            return std::future::pending().await;
        }
        let line = self.lines.recv().await.unwrap_or(Line::End);
        self.open = false;
        line
    }

    /// Prints text; above the prompt while one is open.
    ///
    /// # Errors
    /// See [`Failure::output`].
    pub fn print(&mut self, out: super::output::Output, text: &str) -> Result<(), Failure> {
        if self.open
            && let Some(printer) = &mut self.printer
            && printer.print(text.to_owned()).is_ok()
        {
            return Ok(());
        }
        out.raw(text)
    }
}
