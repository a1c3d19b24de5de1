# Runs in bash before each task script: what people expect from their own shell.
unset BASH_ENV
__sky_dir=$PWD
if [ -r ~/.bashrc ]; then
    . "${BASH_SOURCE[0]%/*}/bashrc.sh" >/dev/null 2>&1
    unset -f exec exit
    unset PS1 __sky_rc
fi
if ! type conda >/dev/null 2>&1; then
    for __sky_conda in ~/miniconda3 ~/anaconda3 ~/miniforge3 /opt/conda; do
        if [ -r "$__sky_conda/etc/profile.d/conda.sh" ]; then
            . "$__sky_conda/etc/profile.d/conda.sh" >/dev/null 2>&1
            break
        fi
    done
    unset __sky_conda
fi
cd "$__sky_dir" || exit 1
unset __sky_dir
