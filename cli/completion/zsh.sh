#compdef sluice
# Completion for zsh, from the program's own --help: commands, options, and the values of options that have a few.
#   source <(sluice completion zsh)
_sluice() {
  local program=${words[1]} previous=${words[CURRENT-1]} word help
  [[ $previous == --* && $previous != *[^a-z-]* ]] || previous=--none
  local -a way candidates
  help=$("$program" --help 2>/dev/null)
  for word in ${words[2,CURRENT-1]}; do
    candidates=(${(f)"$(sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p' <<<"$help")"})
    if (( ${candidates[(Ie)$word]} )); then
      way+=($word)
      help=$("$program" $way --help 2>/dev/null)
    fi
  done
  candidates=(${(f)"$(sed -n "s/^  \(-[a-zA-Z],\)\{0,1\}\([a-z,-]*,\)\{0,1\}$previous [A-Z]*:{\([^}]*\)}.*/\3/p" <<<"$help" | tr ',' '\n')"})
  if (( $#candidates )); then
    compadd -a candidates
  elif [[ $PREFIX == -* ]]; then
    candidates=(${(f)"$(sed -n 's/^  \(-[a-zA-Z],\)\{0,1\}\(--[a-z][a-z,-]*\).*/\2/p' <<<"$help" | tr ',' '\n')"})
    compadd -a candidates
  else
    candidates=(${(f)"$(sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p' <<<"$help")"})
    compadd -a candidates
    _files
  fi
}
if [[ $funcstack[1] == _sluice ]]; then _sluice "$@"; else compdef _sluice sluice; fi
