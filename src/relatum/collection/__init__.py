"""Collections of images: near-duplicates, outliers, clusters and diverse subsets, as pure functions of arrays.

`index` computes what they need, once per image, and keeps it with the run. Nothing here changes an image file.
"""
