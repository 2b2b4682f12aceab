# Completion for bash, from the program's own --help: commands, options, and the values of options that have a few.
#   source <(sluice completion bash)
_sluice_commands() { sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p'; }
_sluice_options() { sed -n 's/^  \(-[a-zA-Z],\)\{0,1\}\(--[a-z][a-z,-]*\).*/\2/p' | tr ',' '\n'; }
_sluice_values() { [[ $1 =~ ^--?[a-zA-Z-]+$ ]] && sed -n "s/^  \(-[a-zA-Z],\)\{0,1\}\([a-z,-]*,\)\{0,1\}$1 [A-Z]*:{\([^}]*\)}.*/\3/p" | tr ',' '\n'; }

_sluice() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} word values
  local -a path=()
  local help
  help=$("$program" --help 2>/dev/null)
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if _sluice_commands <<<"$help" | grep -qxF -e "$word"; then
      path+=("$word")
      help=$("$program" "${path[@]}" --help 2>/dev/null)
    fi
  done
  values=$(_sluice_values "${COMP_WORDS[COMP_CWORD-1]}" <<<"$help")
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_sluice_options <<<"$help")" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$(_sluice_commands <<<"$help")" -- "$current")
  fi
}
complete -o bashdefault -o default -F _sluice sluice
