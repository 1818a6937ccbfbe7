"""Every option the reference knows, whether or not anything here reads it.

Taken from the setters of the configuration classes in the published packages 5.5.0, 5.3.3,
4.9.7 and 4.6.0, the way the reference itself finds them (MixAll#properties2Object): `setX` makes
the key `x`. A broker that saves its configuration writes names of fields instead, so fields without
such a setter are here too. Sorted within each class; a key may belong to several.
"""

from typing import Final

# MessageStoreConfig.
_STORE: Final = """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio allAckInSyncStateSet asyncLearner
    autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore brokerRole checkCRCOnRecover
    cleanFileForciblyEnable cleanResourceInterval cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval coldDataFlowControlEnable coldDataScanEnable commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dataReadAheadEnable
    debugLockEnable defaultQueryMaxNum deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen destroyMapedFileIntervalForcibly
    disappearTimeAfterStart diskFallRecorded diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
    diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
    dLegerGroup dLegerPeers dLegerSelfId duplicationEnable enableAsyncReput
    enableAutoInSyncReplicas enableBatchPush enableBuildConsumeQueueConcurrently
    enableCleanExpiredOffset enableCompaction enableConsumeQueueExt enabledAppendPropCRC
    enableDLegerCommitLog enableLmq enableMultiDispatch enableRocksDBLog
    enableScheduleAsyncDeliver enableScheduleMessageStats fastFailIfNoBufferInStorePool
    fileReservedTime flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDelayOffsetInterval
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC haFlowControlEnable haHousekeepingInterval
    haListenPort haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup
    haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize inSyncReplicas
    isEnableBatchPush logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog
    mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
    maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxFilterMessageSize
    maxHashSlotNum maxHaTransferByteInSecond maxIndexNum maxLmqConsumeQueueNum maxMessageSize
    maxMsgsNumBatch maxOffsetMapSize maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
    messageDelayLevel messageIndexEnable messageIndexSafe minInSyncReplicas offsetCheckInSlave
    osPageCacheBusyTimeOutMills preferredLeaderId pullBatchMaxMessageCount
    putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater
    readOnlyCommitLogStorePaths readUnCommitted realTimePersistRocksDBConfig
    recheckReputOffsetFromCq redeleteHangedFileInterval replicasPerDiskPartition
    rocksdbCompressionType rocksdbCQDoubleWriteEnable rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable slaveTimeout spinLockCollisionRetreatOptimalDegree
    statRocksDBCQIntervalSec storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog
    storePathEpochFile storePathRootDir storeType syncFlushTimeout syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
    timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
    timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
    timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError
    timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable topicQueueLockNum
    totalReplicas transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
    useABSLock useReentrantLockWhenPutMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable
"""

# BrokerConfig and BrokerIdentity.
_BROKER: Final = """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity aclEnable adminBrokerThreadPoolNums
    adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
    appendCkAsync asyncSendEnable autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerId brokerIP1 brokerIP2 brokerName brokerNotActiveTimeoutMillis
    brokerPermission brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
    checkSyncStateSetPeriod cleanOfflineBrokerInterval clearRetryTopicWhenDeleteTopic
    clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clusterTopicEnable
    coldCtrStrategyEnable commercialBaseCount commercialBigCount commercialEnable
    commercialSizePerMsg commercialTimerCount commercialTransCount compatibleWithOldNameSrv
    compressedRegister configBlackList configManagerVersion consumerFallbehindThreshold
    consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
    consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    defaultMessageRequestMode defaultPopShareQueueNum defaultTopicQueueNums
    delayOffsetUpdateVersionStep disableConsumeIfConsumerReadSlowly enableBroadcastOffsetStore
    enableCalcFilterBitMap enableControllerMode enableCreateSysGroup enableDetailStat
    enableFastChannelEventProcess enableLmqStats enableMixedMessageType enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
    enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePropertyFilter
    enableRegisterProducer enableRemoteEscape enableRetryTopicV2 enableSingleTopicRegister
    enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitRegistration
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fetchControllerAddrByDnsLookup fetchNamesrvAddrByAddressServer
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval filterDataCleanTimeSpan filterServerNums
    filterSupportRetry flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval
    forceRegister forwardTimeout globalColdReadThreshold heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer initPopOffsetByCheckMsgInMem
    isBrokerContainer isInBrokerContainer isolateLogEnable listenPort litePullMessageEnable
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode longPollingEnable maxDelayTime
    maxErrorRateOfBloomFilter maxPopPollingSize maxStatsIdleTimeInMinutes messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
    metricsPromExporterHost metricsPromExporterPort msgTraceTopicName namesrvAddr
    notifyConsumerIdsChangedEnable popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapSize popPollingSize
    popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    printChannelGroups printChannelGroupsMinNum processReplyMessageThreadPoolNums
    pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    realTimeNotifyConsumerChange recallMessageEnable recoverConcurrently recoverThreadPoolNums
    regionId registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable
    rejectTransactionMessage replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1
    reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverLoadBalancerEnable shortPollingTimeMills skipPreOnline skipWhenCKRePutReachMaxTimes
    slaveReadEnable splitRegistrationSize startAcceptSendRequestTimeStamp storeReplyMessageEnable
    subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
    syncControllerMetadataPeriod traceOn traceTopicEnable transactionCheckInterval
    transactionCheckMax transactionMetricFlushInterval transactionOpBatchInterval
    transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap updateNameServerAddrPeriod
    usePIDColdCtrStrategy useServerSideResetOffset useStaticSubscription
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
    waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
"""

# NettyServerConfig and NettyClientConfig.
_NETWORK: Final = """
    bindAddress channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
    enableReconnectForGoAway enableShutdownGracefully isScanAvailableNameSrv listenPort
    maxReconnectIntervalTimeSeconds scanAvailableNameSrv serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds socksProxyConfig useEpollNativeSelector useTLS
    writeBufferHighWaterMark writeBufferLowWaterMark
"""

# NamesrvConfig.
_NAME_SERVER: Final = """
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest configBlackList
    configStorePath defaultThreadPoolNums defaultThreadPoolQueueCapacity
    deleteTopicWithBrokerRegistration enableAllTopicList enableControllerInNamesrv enableTopicList
    kvConfigPath needWaitForService notifyMinBrokerIdChanged orderMessageEnable productEnvName
    returnOrderTopicConfigToBroker rocketmqHome scanNotActiveBrokerInterval supportActingMaster
    unRegisterBrokerQueueCapacity waitSecondsForService
"""

# ControllerConfig and JraftConfig.
_CONTROLLER: Final = """
    configBlackList configStorePath controllerDLegerGroup controllerDLegerPeers
    controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity controllerStorePath
    controllerThreadPoolNums controllerType electMasterMaxRetryCount enableElectUncleanMaster
    isProcessReadEvent jRaftControllerRPCAddr jRaftElectionTimeoutMs jRaftGroupId jRaftInitConf
    jRaftScanWaitTimeoutMs jRaftServerId jRaftSnapshotIntervalSecs mappedFileSize
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsPromExporterHost
    metricsPromExporterPort notifyBrokerRoleChanged processReadEvent rocketmqHome
    scanInactiveMasterInterval scanNotActiveBrokerInterval
"""

# AuthConfig.
_AUTH: Final = """
    aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
    authenticationEnabled authenticationMetadataProvider authenticationProvider
    authenticationStrategy authenticationWhitelist authorizationEnabled
    authorizationMetadataProvider authorizationProvider authorizationStrategy
    authorizationWhitelist clusterName configName initAuthenticationUser
    innerClientAuthenticationCredentials migrateAuthFromV1Enabled
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
"""

# MessageStoreConfig of the tiered store.
_TIERED: Final = """
    brokerClusterName brokerName commitLogRollingInterval commitLogRollingMinimumSize
    messageIndexEnable objectStoreAccessKey objectStoreBucket objectStoreEndpoint
    objectStoreSecretKey readAheadCacheEnable readAheadCacheExpireDuration
    readAheadCacheSizeThresholdRate readAheadMessageCountThreshold readAheadMessageSizeThreshold
    recordGetMessageResult storePathRootDir tieredBackendServiceProvider
    tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize
    tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
    tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime
    tieredStoreGroupCommit tieredStoreGroupCommitCount tieredStoreGroupCommitSize
    tieredStoreGroupCommitTimeout tieredStoreIndexFileMaxHashSlotNum
    tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
"""

# Read by BrokerStartup itself, from the same file.
_START: Final = """
    rmqAddressServerDomain rmqAddressServerSubGroup
"""

# MessageStoreConfig: added by 5.5.0.
_STORE_5_5: Final = """
    appendTopicForTimerDeleteKey checkCommitLogOffsetOnRecover combineAssignOffsetCQType
    combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles
    combineCQPreferCQType combineCQUseRocksdbForLmq commitLogRecoverMaxNum
    enableAcceleratedRecovery enableLmqQuota enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableRunningFlagsInFlush indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
    iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays sharedByteBufferNum
    timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerReputServiceCorePoolSize
    timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBEnable
    timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
    timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
    timerWheelSnapshotFlush timerWheelSnapshotIntervalMs transRocksDBEnable
    transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ writeWithoutMmap
"""

# BrokerConfig: added by 5.5.0.
_BROKER_5_5: Final = """
    enableConnectionMetrics enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog
    enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics enableRequestMetrics
    enableSplitMetadata enableStatsMetrics enableTransactionMetrics liteEventCheckInterval
    liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
    liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
    liteLagLatencyTopK liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
    liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount
    maxMessageFilterNumForNotification metricsExportBatchMaxDataPoints minLiteTTl
    persistConsumerOffsetIncrementally popFromRetryProbabilityForPriority
    popPollingMapExpireTimeSeconds popReviveConcurrency popReviveSkipIfGroupAbsent
    priorityOrderAsc splitMetadataSize transactionCheckRocksdbCoreThreads
    transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
    useMessageFilterForNotification useSeparateRetryQueue useSingleRocksDBForAllConfigs
"""

_BLOCKS: Final = (
    _STORE,
    _BROKER,
    _NETWORK,
    _NAME_SERVER,
    _CONTROLLER,
    _AUTH,
    _TIERED,
    _START,
    _STORE_5_5,
    _BROKER_5_5,
)

KNOWN_KEYS: Final = frozenset(" ".join(_BLOCKS).split())

ALIASES: Final = {
    "haSlaveFallbehindMax": "haMaxGapNotInSync",  # 4.x, 5.x
    "isEnableBatchPush": "enableBatchPush",
    "isInBrokerContainer": "inBrokerContainer",
    "isProcessReadEvent": "processReadEvent",
    "isScanAvailableNameSrv": "scanAvailableNameSrv",
}
"""Another spelling of a key -> the key. The first is of 4.x, the others are names of fields."""
