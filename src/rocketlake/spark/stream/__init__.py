"""Topics as streams: offsets, limits, a group's progress, lag, and consuming with retries.

stream_reader   what Spark calls
stream_options  the options that only a stream has
stream_driver   where batches begin and end
sources           what there is to read now, and how big it is
archived_lanes  the same with an archive before, or instead of, the stores
offsets         what a checkpoint keeps
advancing       from where a batch goes on, and what was lost
behind          messages, bytes and seconds that it has not read
limits          how much of it one batch takes
progress        a group's progress, where other tools see it
listener        lag, from the progress that Spark reports
consuming       a foreachBatch with retries and dead letters
rows            its rows, one by one on executors
journal         what it did with its batches
"""
