#!/bin/sh
# Starts the servers of bench/guest-access.sh inside of a guest: NFS over TCP and RDMA, iSCSI and iSER,
# all with files in the memory of the guest. Prints a line per server that cannot start.
set -u
ulimit -l unlimited
say() { echo "server: $*"; }
# tgtd reserves far more memory for iSER than it uses.
echo 1 >/proc/sys/vm/overcommit_memory
modprobe -a nfsd svcrdma rdma_rxe || say "no modules for NFS or RDMA"
rdma link add rxe0 type rxe netdev eth0 || say "no soft-RoCE"
mkdir -p /srv/export /srv/disk /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery /proc/fs/nfsd /run/tgtd
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
tgtd >/tmp/tgtd.log 2>&1 || say "no iSCSI target: $(tail -n 1 /tmp/tgtd.log)"
until tgtadm --lld iscsi --op show --mode target >/dev/null 2>&1; do sleep 1; done
number=1
for driver in iscsi iser; do
    truncate -s 40M /srv/disk/$driver
    tgtadm --lld $driver --op new --mode target --tid $number -T iqn.2026-11.example:$driver &&
        tgtadm --lld $driver --op new --mode logicalunit --tid $number --lun 1 -b /srv/disk/$driver &&
        tgtadm --lld $driver --op bind --mode target --tid $number -I ALL || say "no $driver target"
    number=$((number + 1))
done
(while :; do ib_write_bw -d rxe0 -x 1 -F -p 18515 -n 400 || sleep 0.2; done) >/dev/null 2>&1 </dev/null &
(while :; do ib_write_bw -d rxe0 -x 1 -F -p 18516 -q 4 -n 100 || sleep 0.2; done) >/dev/null 2>&1 </dev/null &
say ready
