#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the suites as a service manager would start a node, and ends the machine.
export PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp LANG=C.UTF-8
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs -o mode=1777 none /tmp
mount -t ext4 /dev/nvme0n1 /var/tmp && chmod 1777 /var/tmp
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
# As most kernels are set up, Debian's are not: else nobody's attack could be seen to succeed.
echo 2 > /proc/sys/kernel/perf_event_paranoid
cat /sys/fs/cgroup/cgroup.controllers

failed=0
# In a group of its own, by name; what follows is the program. It is its only process.
in_group() {
    group=/sys/fs/cgroup/$1
    shift
    mkdir -p "$group"
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@" || failed=1
}

for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
done

echo "machine: containers, as root, in a group that is handed to it"
in_group handed /suites/containers
echo "machine: containers, as root, beside others"
/suites/containers lifecycle:: || failed=1
echo "machine: functions"
in_group functions /suites/functions contract
echo "machine: containers, as a user to whom a group is delegated"
mkdir /sys/fs/cgroup/delegated
chown -R 64242:64242 /sys/fs/cgroup/delegated
in_group delegated python3 -c 'import os; os.setgid(64242); os.setuid(64242); os.execv("/suites/containers", ["containers", "resources::"])'

[ "$failed" = 0 ] && echo "machine: all suites passed"
poweroff -f
