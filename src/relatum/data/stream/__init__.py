"""Images that are streamed from tar shards: decoded when they are needed, never stored decoded.

`store` reads bytes of shards, from a disk or from a URL; `blocks` caches what comes from a URL; `listing` lists the
images of a tar file and `index` is the written list of all; `order` is the order of an epoch; `images` decodes;
`loading` puts them together to an `ImageSet`.
"""
