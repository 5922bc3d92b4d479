# Runs in the base image with the flags of devcontainer.json, and prints what they came to, one fact per line. It uses
# nothing but the shell: a base image may not have more. Its arguments: `gpu` or `no-gpu`, and the targets of the mounts.
echo started
while read -r line; do
  echo "limit $line"
done </proc/self/limits
while read -r _ target _ options _; do
  [ "$target" != /dev/shm ] || echo "shm $options"
done </proc/mounts
gpu=$1
shift
for target; do
  readable=no writable=no
  [ ! -r "$target" ] || readable=yes
  [ ! -d "$target" ] || [ -x "$target" ] || readable=no
  [ ! -w "$target" ] || writable=yes
  echo "mount $readable $writable $target"
done
if [ "$gpu" = gpu ]; then
  for device in /dev/nvidia[0-9]* /dev/dxg /dev/nvmap /dev/nvhost-gpu; do
    [ ! -e "$device" ] || echo "device $device"
  done
  names=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>&1) && answer=gpu || answer=no-gpu
  echo "$names" | while read -r name; do
    echo "$answer $name"
  done
fi
echo ended
