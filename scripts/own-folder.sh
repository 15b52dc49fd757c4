#!/usr/bin/env bash
# Sourced by scripts that make a folder for what is run or installed later, often by root. In a place like /var/tmp
# anybody may have made it first, under the same name, and put something there.

# own_folder FOLDER: makes it where it is not there, and says why it will not do where others can change what is in it.
own_folder() {
    local folder mode owner fault=""
    folder=$(realpath -ms -- "$1") # a slash at its end would lead through a link
    # shellcheck disable=SC2174 # the folders above it are as everybody's
    mkdir -p -m 755 -- "$folder" 2>/dev/null || true
    # One look for all, and at the link itself: nobody can put another folder in its place in between.
    read -r mode owner < <(stat -c '%f %u' -- "$folder" 2>/dev/null || echo '0 0')
    mode=$((0x$mode))
    case $((mode & 0170000)) in
    $((0040000)))
        if [ "$owner" != "$(id -u)" ]; then
            fault="belongs to user id $owner, not to you: somebody else may have put something there; remove it or choose another"
        elif [ $((mode & 0022)) != 0 ]; then
            fault="can be written to by others: remove it, or look at what is in it and chmod go-w it"
        fi
        ;;
    $((0120000))) fault="is a link: remove it or choose another" ;;
    0) fault="cannot be made" ;;
    *) fault="is no folder" ;;
    esac
    if [ -n "$fault" ]; then
        printf '%s: %s %s\n' "$(basename -- "$0" .sh)" "$folder" "$fault" >&2
        return 1
    fi
}
