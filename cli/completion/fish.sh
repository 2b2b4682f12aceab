# Completion for fish, from the program's own --help: commands, options, and the values of options that have a few.
#   sluice completion fish | source
function __sluice_commands
    sed -n '/^Subcommands:/,$ s/^  \([a-z][a-z-]*\) .*/\1/p'
end
function __sluice_candidates
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l way
    set -l help ($words[1] --help 2>/dev/null | string collect)
    for word in $words[2..-1]
        if contains -- $word (echo $help | __sluice_commands)
            set -a way $word
            set help ($words[1] $way --help 2>/dev/null | string collect)
        end
    end
    set -l option (string match --regex '^--[a-z-]+$' -- $words[-1]; or echo --none)
    set -l values (echo $help | sed -n "s/^  \(-[a-zA-Z],\)\{0,1\}\([a-z,-]*,\)\{0,1\}$option [A-Z]*:{\([^}]*\)}.*/\3/p" | tr ',' '\n')
    if test -n "$values"
        printf '%s\n' $values
        return
    end
    echo $help | __sluice_commands
    echo $help | sed -n 's/^  \(-[a-zA-Z],\)\{0,1\}\(--[a-z][a-z,-]*\).*/\2/p' | tr ',' '\n'
end
complete -c sluice -a '(__sluice_candidates)'
