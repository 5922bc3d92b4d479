"""What the formats of a project's files allow: the options of docker run, and the keys of the other files.

Keys: for each place in a file, the keys that may stand there; * stands for any key or position.
"""

from __future__ import annotations

# docker run's options, by the kind of their value as `docker run --help` names it (Docker 28.2, tried 2026-11-25).
KINDS = {
    "": "detach disable-content-trust help init interactive no-healthcheck oom-kill-disable privileged publish-all "
    "quiet read-only rm sig-proxy tty use-api-socket",
    "bytes": "kernel-memory memory memory-reservation memory-swap shm-size",
    "decimal": "cpus",
    "duration": "health-interval health-start-interval health-start-period health-timeout",
    "gpu-request": "gpus",
    "int": "cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares health-retries memory-swappiness "
    "oom-score-adj pids-limit stop-timeout",
    "list": "add-host attach blkio-weight-device cap-add cap-drop device device-cgroup-rule device-read-bps "
    "device-read-iops device-write-bps device-write-iops dns dns-option dns-search env env-file expose group-add "
    "label label-file link link-local-ip log-opt network-alias publish security-opt storage-opt tmpfs volume "
    "volumes-from",
    "map": "annotation sysctl",
    "mount": "mount",
    "network": "network",
    "string": "cgroup-parent cgroupns cidfile cpuset-cpus cpuset-mems detach-keys domainname entrypoint health-cmd "
    "hostname ip ip6 ipc isolation log-driver mac-address name pid platform pull restart runtime stop-signal user "
    "userns uts volume-driver workdir",
    "uint16": "blkio-weight",
    "ulimit": "ulimit",
}
# Those that docker build has, too (docker buildx build --help, Docker 28.2; and without buildx).
BUILD_TOO = (
    "add-host annotation cgroup-parent cpu-period cpu-quota cpu-shares cpuset-cpus cpuset-mems disable-content-trust "
    "isolation label memory memory-swap network platform pull quiet rm security-opt shm-size ulimit"
)
# Options that only Podman has, without and with a value (https://docs.podman.io, podman-run, read 2026-11-25).
PODMAN = {
    "": "env-host http-proxy no-hostname no-hosts passwd read-only-tmpfs replace rmi rootfs tls-verify unsetenv-all",
    "string": "arch authfile cert-dir cgroup-conf cgroups chrootdirs conmon-pidfile cpuset creds decryption-key "
    "env-merge gidmap group-entry health-log-destination health-max-log-count health-max-log-size health-on-failure "
    "health-startup-cmd health-startup-interval health-startup-retries health-startup-success health-startup-timeout "
    "hosts-file hostuser image-volume init-path os passwd-entry personality pidfile pod pod-id-file preserve-fd "
    "preserve-fds rdt-class requires retry retry-delay sdnotify seccomp-policy secret shm-size-systemd subgidname "
    "subuidname systemd timeout tz uidmap umask unsetenv variant",
}
# Other spellings, some of which `--help` does not list.
LONG = {"-a": "--attach", "-c": "--cpu-shares", "-d": "--detach", "-e": "--env", "-h": "--hostname"}
LONG.update({"-i": "--interactive", "-l": "--label", "-m": "--memory", "-p": "--publish", "-P": "--publish-all"})
LONG.update({"-q": "--quiet", "-t": "--tty", "-u": "--user", "-v": "--volume", "-w": "--workdir"})
LONG.update({"--net": "--network", "--net-alias": "--network-alias", "--dns-opt": "--dns-option"})
# The limits that --ulimit sets (getrlimit(2); docker/go-units ulimit.go, read 2026-11-25).
LIMITS = "core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"
MOUNT_TYPES = "bind volume tmpfs npipe cluster image devpts glob ramfs artifact"
# The fields of --mount: Docker's, then those that only Podman has.
MOUNT = (
    "type source src target dst destination readonly ro consistency bind-propagation bind-nonrecursive bind-recursive "
    "bind-create-src volume-subpath volume-nocopy volume-label volume-driver volume-opt image-subpath tmpfs-size "
    "tmpfs-mode "
    "rw readwrite U chown idmap relabel z Z subpath tmpcopyup notmpcopyup noswap uid gid mode max swap copy nocopy "
    "exec noexec dev nodev suid nosuid size no-dereference digest title name"
)

# devcontainer.json
# https://github.com/devcontainers/spec/blob/main/schemas/devContainer.base.schema.json (read 2026-11-25)
PORT = "onAutoForward elevateIfNeeded label requireLocalPort protocol"
DEVCONTAINER = {
    "": "$schema name features overrideFeatureInstallOrder secrets forwardPorts portsAttributes otherPortsAttributes "
    "updateRemoteUserUID containerEnv containerUser mounts init privileged capAdd securityOpt remoteEnv remoteUser "
    "initializeCommand onCreateCommand updateContentCommand postCreateCommand postStartCommand postAttachCommand "
    "waitFor userEnvProbe hostRequirements customizations appPort runArgs shutdownAction overrideCommand "
    "workspaceFolder workspaceMount build image dockerComposeFile service runServices",
    "/build": "dockerfile context target args cacheFrom options",
    "/hostRequirements": "cpus memory storage gpu",
    "/hostRequirements/gpu": "cores memory",
    "/portsAttributes/*": PORT,
    "/otherPortsAttributes": PORT,
    "/mounts/*": "type source target",
    "/customizations/vscode": "extensions settings devPort",
}
# Top-level keys of the old format, and those that Compose or another level of the file has for the same purpose.
ELSEWHERE = {
    "dockerFile": "build.dockerfile",
    "dockerfile": "build.dockerfile",
    "context": "build.context",
    "args": "build.args",
    "extensions": "customizations.vscode.extensions",
    "settings": "customizations.vscode.settings",
    "devPort": "customizations.vscode.devPort",
    "vscode": "customizations.vscode",
    "gpu": "hostRequirements.gpu",
    "env": "containerEnv",
    "environment": "containerEnv",
    "ports": "forwardPorts",
    "user": "containerUser",
    "volumes": "mounts",
}

# compose.yaml: https://github.com/compose-spec/compose-spec/blob/main/schema/compose-spec.json (read 2026-11-25)
COMPOSE = {
    "": "configs include models name networks secrets services version volumes",
    "/services/*": (
        "annotations attach blkio_config build cap_add cap_drop cgroup cgroup_parent command configs container_name "
        "cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset "
        "credential_spec depends_on deploy develop device_cgroup_rules devices dns dns_opt dns_search domainname "
        "entrypoint env_file environment expose extends external_links extra_hosts gpus group_add healthcheck "
        "hostname image init ipc isolation label_file labels links logging mac_address mem_limit mem_reservation "
        "mem_swappiness memswap_limit models network_mode networks oom_kill_disable oom_score_adj pid pids_limit "
        "platform ports post_start pre_stop privileged profiles provider pull_policy pull_refresh_after read_only "
        "restart runtime scale secrets security_opt shm_size stdin_open stop_grace_period stop_signal storage_opt "
        "sysctls tmpfs tty ulimits use_api_socket user userns_mode uts volumes volumes_from working_dir"
    ),
    "/services/*/build": (
        "additional_contexts args cache_from cache_to context dockerfile dockerfile_inline entitlements extra_hosts "
        "isolation labels network no_cache platforms privileged provenance pull sbom secrets shm_size ssh tags target "
        "ulimits"
    ),
    "/services/*/deploy": (
        "endpoint_mode labels mode placement replicas resources restart_policy rollback_config update_config"
    ),
    "/services/*/deploy/resources": "limits reservations",
    "/services/*/deploy/resources/limits": "cpus memory pids",
    "/services/*/deploy/resources/reservations": "cpus devices generic_resources memory",
    "/services/*/deploy/resources/reservations/devices/*": "capabilities count device_ids driver options",
    "/services/*/healthcheck": "disable interval retries start_interval start_period test timeout",
    "/services/*/volumes/*": "bind consistency image read_only source target tmpfs type volume",
    "/services/*/ports/*": "app_protocol host_ip mode name protocol published target",
    "/services/*/env_file/*": "format path required",
    "/networks/*": "attachable driver driver_opts enable_ipv4 enable_ipv6 external internal ipam labels name",
    "/volumes/*": "driver driver_opts external labels name",
}

# The Dockerfile's instructions: https://docs.docker.com/reference/dockerfile/ (read 2026-11-25)
INSTRUCTIONS = (
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME "
    "WORKDIR"
)

# Their flags, and what RUN --mount has: its types, its fields, and how a cache is shared
# (https://docs.docker.com/reference/dockerfile/, read 2026-11-26)
INSTRUCTION_FLAGS = {
    "ADD": "keep-git-dir checksum chown chmod link exclude unpack",
    "COPY": "from chown chmod link parents exclude",
    "FROM": "platform",
    "HEALTHCHECK": "interval timeout start-period start-interval retries",
    "RUN": "mount network security device",
}
RUN_MOUNT_TYPES = "bind cache tmpfs secret ssh"
RUN_MOUNT = (
    "type source src from target dst destination readonly ro readwrite rw id sharing mode uid gid required size env"
)

# The long options of #SBATCH lines: sbatch(1) of Slurm 22.05.8 (read 2026-11-25), and later ones that resemble them.
SBATCH = (
    "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container "
    "container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot "
    "dependency distribution error exclude exclusive export export-file extra extra-node-info get-user-env gid "
    "gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs "
    "input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu "
    "mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu "
    "ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe parsable partition power prefer "
    "priority profile propagate qos quiet reboot requeue reservation signal sockets-per-node spread-job switches "
    "test-only thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes "
    "verbose version wait wait-all-nodes wckey wrap"
)
SBATCH_SHORT = {"-t": "time", "-N": "nodes", "-n": "ntasks", "-c": "cpus-per-task", "-G": "gpus"}

# cluster/job.yaml, by the kinds of its documents: the API of Kubernetes 1.37, as its Python client 37.0.2 has it
# (read 2026-11-26)
KUBERNETES = {
    "/Job": "apiVersion kind metadata spec status",
    "/Service": "apiVersion kind metadata spec status",
    "/PersistentVolumeClaim": "apiVersion kind metadata spec status",
    "/*/metadata": "annotations creationTimestamp finalizers generateName labels name namespace ownerReferences",
    "/Job/spec": (
        "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy manualSelector "
        "maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy scheduling selector successPolicy suspend "
        "template ttlSecondsAfterFinished"
    ),
    "/Job/spec/podFailurePolicy/rules/*": "action onExitCodes onPodConditions",
    "/Job/spec/podFailurePolicy/rules/*/onExitCodes": "containerName operator values",
    "/Job/spec/template": "metadata spec",
    "/Job/spec/template/spec": (
        "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks "
        "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride "
        "imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName "
        "readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates "
        "securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
        "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes"
    ),
    "/Job/spec/template/spec/containers/*": (
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy "
        "resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
        "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    "/Job/spec/template/spec/securityContext": (
        "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy "
        "seLinuxOptions seccompProfile supplementalGroups supplementalGroupsPolicy sysctls windowsOptions"
    ),
    "/Job/spec/template/spec/containers/*/securityContext": (
        "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem runAsGroup "
        "runAsNonRoot runAsUser seLinuxOptions seccompProfile windowsOptions"
    ),
    "/Job/spec/template/spec/containers/*/env/*": "name value valueFrom",
    "/Job/spec/template/spec/containers/*/resources": "claims limits requests",
    "/Job/spec/template/spec/containers/*/volumeMounts/*": (
        "bindMountOptions mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr"
    ),
    "/Job/spec/template/spec/tolerations/*": "effect key operator tolerationSeconds value",
}

# cluster/sky.yaml: sky/utils/schemas.py of SkyPilot 0.14.1 (read 2026-11-26)
SKYPILOT = {
    "": (
        "name workdir event_callback num_nodes resources file_mounts service pool setup run envs secrets "
        "managed_secrets inputs outputs config volumes volume_mounts api_server_access"
    ),
    "/resources": (
        "cloud region zone infra cpus memory accelerators instance_type use_spot job_recovery volumes disk_size "
        "ephemeral_storage disk_tier network_tier local_disk max_hourly_cost ports labels accelerator_args image_id "
        "autostop priority any_of ordered"
    ),
    "/file_mounts/*": "name source store persistent mode type config",
}

# monitoring/alerts.yml: https://prometheus.io/docs/prometheus/latest/configuration/recording_rules/ (read 2026-11-26)
PROMETHEUS = {
    "": "groups",
    "/groups/*": "name interval limit query_offset labels rules",
    "/groups/*/rules/*": "record alert expr for keep_firing_for labels annotations",
}

# .github/workflows: https://docs.github.com/actions/reference/workflows-and-actions/workflow-syntax (read 2026-11-25)
EVENTS = (
    "branch_protection_rule check_run check_suite create delete deployment deployment_status discussion "
    "discussion_comment fork gollum image_version issue_comment issues label merge_group milestone page_build public "
    "pull_request pull_request_review pull_request_review_comment pull_request_target push registry_package release "
    "repository_dispatch schedule status watch workflow_call workflow_dispatch workflow_run"
)
ACTIVITIES = (  # of pull requests: github/docs, workflow-triggers-pull-request-activity-types.md (read 2026-11-27)
    "assigned unassigned labeled unlabeled opened edited closed reopened synchronize converted_to_draft locked "
    "unlocked enqueued dequeued milestoned demilestoned ready_for_review review_requested review_request_removed "
    "auto_merge_enabled auto_merge_disabled"
)
PERMISSIONS = (
    "actions artifact-metadata attestations checks contents deployments discussions id-token issues models packages "
    "pages pull-requests security-events statuses"
)
WORKFLOW = {
    "": "name run-name on permissions env defaults concurrency jobs",
    "/on": EVENTS,
    "/on/*": "types branches branches-ignore tags tags-ignore paths paths-ignore workflows inputs outputs secrets",
    "/permissions": PERMISSIONS,
    "/jobs/*/permissions": PERMISSIONS,
    "/jobs/*": "name permissions needs if runs-on snapshot environment concurrency outputs env defaults steps "
    "timeout-minutes strategy continue-on-error container services uses with secrets",
    "/jobs/*/steps/*": "id if name uses run working-directory shell with env continue-on-error timeout-minutes",
}
