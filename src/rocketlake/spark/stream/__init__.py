"""Topics as streams: offsets, limits, a group's progress, lag, and consuming with retries.

stream_reader     what Spark calls
stream_options    the options that only a stream has
stream_driver     where batches begin and end
sources           what there is to read, and its size
archived_sources  the same with an archive in front of, or instead of, the stores
positions         many queues of a store as one place in its log
offsets           what a checkpoint keeps
batch_start       where a batch begins, and what was lost
limits            how much one batch takes
lag               messages, bytes and seconds behind the end of the stores
progress          a group's progress, where other tools see it
listener          lag, from the progress that Spark reports
consuming         a foreachBatch with retries and dead letters
rows              the handler's rows, on executors
journal           what consuming did with its batches
"""
