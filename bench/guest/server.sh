#!/bin/sh
# Starts the servers of bench/guest-access.sh inside of a guest: NFS over TCP and RDMA, iSCSI and iSER,
# all with files in the memory of the guest. Prints a line per server that cannot start.
set -u
ulimit -l unlimited
say() { echo "server: $*"; }
modprobe -a nfsd svcrdma rdma_rxe || say "no modules for NFS or RDMA"
rdma link add rxe0 type rxe netdev eth0 || say "no soft-RoCE"
mkdir -p /srv/export /srv/disk /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery
mount -t tmpfs -o size=192M export /srv/export
mount -t tmpfs -o size=96M disk /srv/disk
rpcbind -w || say "no portmapper"
mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd
touch /etc/exports
# Without a grace period: there are no clients of an earlier server.
echo 1 >/proc/fs/nfsd/nfsv4gracetime 2>/dev/null
echo 10 >/proc/fs/nfsd/nfsv4leasetime 2>/dev/null
exportfs -o rw,async,no_root_squash,insecure,fsid=0,no_subtree_check '*:/srv/export' || say "no export"
rpc.nfsd 16 || say "no NFS server"
rpc.mountd || say "no mountd"
echo rdma 20049 >/proc/fs/nfsd/portlist || say "no NFS over RDMA"
# The kernel's target, with a portal over TCP and one over iSER.
modprobe -a target_core_mod target_core_file iscsi_target_mod ib_isert || say "no modules for iSCSI"
mkdir -p /etc/target
mount -t configfs configfs /sys/kernel/config 2>/dev/null
truncate -s 64M /srv/disk/file
file=/sys/kernel/config/target/core/fileio_0/disk
mkdir -p $file
echo fd_dev_name=/srv/disk/file,fd_dev_size=67108864 >$file/control
echo 1 >$file/enable
group=/sys/kernel/config/target/iscsi/iqn.2026-11.example:disk/tpgt_1
mkdir -p $group/lun/lun_0
ln -s $file $group/lun/lun_0/disk
for setting in authentication=0 generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1; do
    echo "${setting#*=}" >$group/attrib/"${setting%=*}"
done
own=$LONGHAUL_SERVER
mkdir "$group/np/$own:3260" "$group/np/$own:3261" || say "no iSCSI portal"
echo 1 >"$group/np/$own:3261/iser" || say "no iSER portal"
echo 1 >$group/enable || say "no iSCSI target"
(while :; do ib_write_bw -d rxe0 -x 1 -F -u 20 -p 18515 -n 400 || sleep 0.2; done) >/dev/null 2>&1 </dev/null &
(while :; do ib_write_bw -d rxe0 -x 1 -F -u 20 -p 18516 -q 4 -n 100 || sleep 0.2; done) >/dev/null 2>&1 </dev/null &
say ready
