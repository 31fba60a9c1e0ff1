#!/usr/bin/env bash
# The commands that launch/tpu_vm.py runs on each host, in the checkout that it copies to ~/t5x_lite:
#
#     tpu_vm_host.sh install                    # a Python of its own, and t5x_lite for TPUs in it
#     tpu_vm_host.sh start CONFIG [options]     # python -m t5x_lite train CONFIG [options], as a service of systemd
#     tpu_vm_host.sh follow                     # the service's log, to the end of the run
#
# systemd starts the service again after a crash (three times an hour at most), after a reboot and after the status of a
# run that saved after a signal (75), not after bad input (2); before a machine stops it sends SIGTERM, and the run saves.
set -euo pipefail
python=~/t5x_lite_venv/bin/python

install() {
  curl -LsSf https://astral.sh/uv/install.sh | sh
  ~/.local/bin/uv venv --quiet --allow-existing --python 3.12 ~/t5x_lite_venv
  ~/.local/bin/uv pip install --quiet --python "$python" -e "$HOME/t5x_lite[tpu]"
}

start() {
  { echo 'cd ~/t5x_lite'; printf 'exec'; printf ' %q' "$python" -u -m t5x_lite train "$@"; echo; } > ~/t5x_lite_run.sh
  sudo tee /etc/systemd/system/t5x_lite.service > /dev/null <<UNIT
[Unit]
Description=t5x_lite
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=1h
StartLimitBurst=4

[Service]
User=$(id -un)
Environment=T5X_LITE_SUPERVISED=1
ExecStart=/bin/bash $HOME/t5x_lite_run.sh
RemainAfterExit=yes
Restart=on-failure
RestartSec=15
RestartPreventExitStatus=2
TimeoutStopSec=600
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
UNIT
  sudo systemctl daemon-reload
  sudo systemctl enable --quiet t5x_lite
  sudo systemctl restart t5x_lite
}

follow() {
  sudo journalctl --unit=t5x_lite --output=cat --lines=50 --follow &
  until systemctl show t5x_lite --property=SubState --value | grep -Eqx 'exited|failed|dead'; do sleep 10; done
  sleep 2 # the last lines
  sudo kill $!
}

case "${1-}" in
  install | start | follow) "$@" ;;
  *)
    echo "usage: tpu_vm_host.sh install | start CONFIG [options] | follow" >&2
    exit 2
    ;;
esac
