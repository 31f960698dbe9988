//! Shell on the near side, with a prompt that names the link.
//!
//! `LFN_PROMPT` has the text. Each shell first reads the user's own startup files, then puts the text before its
//! prompt. bash and zsh need a startup file for this, which deletes its directory as its first action. So nothing
//! remains, even if the emulator is killed.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variable with the directory of the startup file. The startup file unsets it.
const STARTUP_VARIABLE: &str = "LFN_STARTUP";

/// Deletes the startup file. The shell has already opened it.
const DELETE: &str = r#"[ -z "$LFN_STARTUP" ] || command rm -rf -- "$LFN_STARTUP"
unset LFN_STARTUP
"#;

/// Startup file of bash, instead of ~/.bashrc. Some prompts set PS1 anew each time, so PROMPT_COMMAND checks it.
const BASH: &str = r#"[ ! -f ~/.bashrc ] || . ~/.bashrc
__lfn_prompt() { case $PS1 in "$LFN_PROMPT"*) ;; *) PS1=$LFN_PROMPT$PS1 ;; esac; }
case $(declare -p PROMPT_COMMAND 2>/dev/null) in
  "declare -a"*) PROMPT_COMMAND+=(__lfn_prompt) ;;
  *) PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND
}__lfn_prompt" ;;
esac
"#;

/// First startup file of zsh. All others are the user's own. The hook stays behind the hooks of a prompt theme.
const ZSH: &str = r#"if [[ -n ${LFN_ZDOTDIR+set} ]]; then export ZDOTDIR=$LFN_ZDOTDIR; else unset ZDOTDIR; fi
unset LFN_ZDOTDIR
[[ ! -f ${ZDOTDIR:-$HOME}/.zshenv ]] || source "${ZDOTDIR:-$HOME}/.zshenv"
__lfn_prompt() {
  [[ $PROMPT == "$LFN_PROMPT"* ]] || PROMPT=$LFN_PROMPT$PROMPT
  precmd_functions=(${precmd_functions:#__lfn_prompt} __lfn_prompt)
}
typeset -ga precmd_functions
precmd_functions+=(__lfn_prompt)
"#;

/// Commands that fish runs after its configuration.
const FISH: &str = r#"functions -q fish_prompt; and functions -c fish_prompt __lfn_user_prompt
function __lfn_status; return $argv[1]; end
function fish_prompt; set -l last $status; echo -n $LFN_PROMPT; __lfn_status $last; __lfn_user_prompt; end"#;

/// A shell that was not started yet.
pub(super) struct Shell {
    pub(super) command: Command,
    startup: Option<PathBuf>,
}

impl Shell {
    /// Returns the user's shell. On a terminal, its prompt begins with `prompt`. If the startup file cannot be written,
    /// the prompt stays as it is.
    pub(super) fn of_user(is_on_terminal: bool, prompt: &str) -> Shell {
        let program: OsString =
            env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
        let mut shell = Shell { command: Command::new(&program), startup: None };
        if is_on_terminal {
            // A failure changes only the prompt.
            let _ = shell.set_prompt(Path::new(&program), prompt);
        }
        shell
    }

    fn set_prompt(&mut self, program: &Path, prompt: &str) -> io::Result<()> {
        match program.file_name().and_then(|name| name.to_str()) {
            Some("bash") => {
                let file = self.write_startup("bashrc", BASH)?;
                self.command.arg("--rcfile").arg(file);
            }
            Some("zsh") => {
                self.write_startup(".zshenv", ZSH)?;
                if let Some(own) = env::var_os("ZDOTDIR") {
                    self.command.env("LFN_ZDOTDIR", own);
                }
                self.command.envs(self.startup.as_ref().map(|directory| ("ZDOTDIR", directory)));
            }
            Some("fish") => {
                self.command.arg("--init-command").arg(FISH);
            }
            // Other shells take their prompt from the environment. The user is root inside, but only there.
            _ => {
                self.command.env("PS1", format!("{prompt}$ "));
            }
        }
        Ok(())
    }

    /// Writes a startup file that first deletes itself, into a new directory of this user.
    fn write_startup(&mut self, name: &str, text: &str) -> io::Result<PathBuf> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        let directory = env::temp_dir().join(format!("lfn-shell-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&directory)?;
        let file = directory.join(name);
        self.command.env(STARTUP_VARIABLE, &directory);
        self.startup = Some(directory);
        fs::write(&file, format!("{DELETE}{text}"))?;
        Ok(file)
    }
}

impl Drop for Shell {
    /// Deletes the startup file, if the shell has not read it.
    fn drop(&mut self) {
        if let Some(directory) = &self.startup {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::environment::PROMPT_VARIABLE;

    fn arguments(program: &str) -> (Shell, Vec<String>) {
        let mut shell = Shell { command: Command::new(program), startup: None };
        shell.set_prompt(Path::new(program), "(lfn 20ms) ").unwrap();
        let arguments = shell.command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        (shell, arguments)
    }

    #[test]
    fn startup_files_are_private_and_deleted() {
        for (program, name) in [("/bin/bash", "bashrc"), ("/usr/bin/zsh", ".zshenv")] {
            let (shell, _) = arguments(program);
            let directory = shell.startup.clone().unwrap();
            assert!(fs::read_to_string(directory.join(name)).unwrap().starts_with(DELETE));
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&directory).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o700);
            drop(shell);
            assert!(!directory.exists());
        }
    }

    #[test]
    fn each_shell_gets_its_own_kind_of_prompt() {
        assert_eq!(arguments("/bin/bash").1[0], "--rcfile");
        assert_eq!(arguments("/usr/bin/fish").1[0], "--init-command");
        let (shell, arguments) = arguments("/bin/dash");
        assert!(arguments.is_empty());
        assert!(shell.command.get_envs().any(|(name, value)| name == "PS1" && value.unwrap() == "(lfn 20ms) $ "));
    }

    #[test]
    fn bash_keeps_its_own_startup_file() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(".bashrc"), "PS1='mine> '; PROMPT_COMMAND='PS1=\"again> \"'; own=1").unwrap();
        let (mut shell, _) = arguments("/bin/bash");
        let directory = shell.startup.clone().unwrap();
        let script = r#"eval "$PROMPT_COMMAND"; printf '%s %s %s' "$PS1" "$own" "${LFN_STARTUP-gone}""#;
        shell.command.env("HOME", home.path()).env(PROMPT_VARIABLE, "(lfn 20ms) ").args(["-ic", script]);
        let output = shell.command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "(lfn 20ms) again>  1 gone");
        assert!(!directory.exists());
    }
}
