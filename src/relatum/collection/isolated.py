"""Groups of images that are near one another and far from all others.

A copy is much nearer to its original than any other image is. In a series of look-alikes (rings of more and more lines,
icons with more and more bars) the differences grow step by step: the nearest image is not much nearer than the next. No
threshold separates the two, because neighbours in a series can differ less than a copy and its original. Their
surroundings do: a group of copies is small compared with its distance from the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_APART = 0.4  # the differences in a group are at most this part of those that lead out of it
_WIDEST = 2  # times the threshold: the largest difference in a group, for example between a crop and a brighter copy


@dataclass
class _Cluster:
    """Images joined by links, and the clusters that it was joined from.

    Attributes:
        members: image numbers.
        height: the longest link that was needed to join them.
        parts: the clusters from which it was joined, if more than one image.
        out: the shortest link to another image.
        others: the shortest link of a member to an image that is known to be no copy.
    """

    members: list[int]
    height: float = 0.0
    parts: tuple[_Cluster, ...] = ()
    out: float = float("inf")
    others: float = float("inf")


def isolated_groups(
    count: int,
    links: Mapping[tuple[int, int], float],
    threshold: float,
    no_copies: Collection[tuple[int, int]] = (),
) -> list[tuple[list[int], float]]:
    """Groups of at least two images, each sorted, with the longest link that joins them.

    Single-link clustering joins the images, shortest link first. A cluster is a group if its longest link is at most
    the threshold, and if the largest difference between two members is at most 0.4 times the shortest link that leads
    out of it, and at most twice the threshold: a chain of look-alikes is no group. The largest of nested groups counts.

    Args:
        count: number of images.
        links: the difference of each pair of images that was compared; others are far apart.
        threshold: the longest link in a group.
        no_copies: pairs among the links that are known to be no copies: they never join a group, but a group must
            stand apart from them as from other images.
    """
    clusters = [_Cluster([i]) for i in range(count)]
    near: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    for (i, j), length in sorted(links.items(), key=lambda item: (item[1], item[0])):
        first, second = clusters[i], clusters[j]
        if (i, j) in no_copies:
            first.others, second.others = min(first.others, length), min(second.others, length)
            continue
        near[i].append((j, length))
        if first is second:
            continue
        first.out, second.out = min(first.out, length), min(second.out, length)
        if length > threshold:  # no group reaches further, and joining everything takes quadratic time
            continue
        joined = _Cluster(first.members + second.members, length, (first, second))
        joined.others = min(first.others, second.others)
        for member in joined.members:
            clusters[member] = joined
    waiting = list({id(cluster): cluster for cluster in clusters}.values())
    groups = []
    while waiting:
        cluster = waiting.pop()
        if _is_group(cluster, near, threshold):
            groups.append((sorted(cluster.members), cluster.height))
        else:
            waiting += cluster.parts
    return sorted(groups)


def _is_group(cluster: _Cluster, near: Sequence[Sequence[tuple[int, float]]], threshold: float) -> bool:
    widest = min(_WIDEST * threshold, _APART * min(cluster.out, cluster.others))
    if len(cluster.members) < 2 or cluster.height > min(threshold, widest):
        return False
    members = set(cluster.members)
    return all(difference <= widest for i in members for j, difference in near[i] if j in members)
