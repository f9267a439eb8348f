"""Top-level keys of `kubelet.config.k8s.io/v1beta1` KubeletConfiguration, as of Kubernetes 1.34.4.

A misspelt key in a drop-in is dropped by kubelet without a word (R24), so somebody else has to know the keys.
"""

from __future__ import annotations

import difflib

_NAMES = """
    apiVersion kind
    address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS
    clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles
    containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint
    contentType cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions
    cpuManagerReconcilePeriod crashLoopBackOff enableContentionProfiling enableControllerAttachDetach
    enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer
    enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS
    evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod
    evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates fileCheckFrequency hairpinMode
    healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent imageGCLowThresholdPercent
    imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy imageServiceEndpoint
    iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReserved
    kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains
    maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy memorySwap memoryThrottlingFactor
    mergeDefaultEvictionSettings nodeLeaseDurationSeconds nodeStatusMaxImages nodeStatusReportFrequency
    nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
    preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved readOnlyPort
    registerNode registerWithTaints registryBurst registryPullQPS reservedMemory reservedSystemCPUs
    resolvConf rotateCertificates runOnce runtimeRequestTimeout seccompDefault serializeImagePulls
    serverTLSBootstrap showHiddenMetricsForVersion shutdownGracePeriod shutdownGracePeriodByPodPriority
    shutdownGracePeriodCriticalPods singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader
    streamingConnectionIdleTimeout syncFrequency systemCgroups systemReserved systemReservedCgroup
    tlsCertFile tlsCipherSuites tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy
    topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir
    volumeStatsAggPeriod
"""
FIELDS = frozenset(_NAMES.split())


def nearest(key: str) -> str | None:
    """The field that `key` was probably meant to be; capitals are the usual mistake (O-07)."""
    for field in FIELDS:
        if field.lower() == key.lower():
            return field
    close = difflib.get_close_matches(key, FIELDS, n=1, cutoff=0.8)
    return close[0] if close else None
