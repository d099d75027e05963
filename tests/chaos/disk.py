"""What a cut of the power leaves of a folder.

The shim notes every change that runs make below a folder. `Disk.cut` puts that folder into a state
that a file system may be in after the power was cut at this moment. What was synced is there.
Whatever else was written or renamed may be lost:

- A folder's new, renamed and removed names are sure only after an fsync of that folder. An fsync of
  a file says nothing of its name. On a journaling file system (`journal`) names are kept in order,
  and any fsync keeps all names before it.
- A file's bytes are sure only after an fsync of the file. Otherwise it may be as it was at its last
  fsync, or be cut anywhere, or have zeros in place of what was written.
"""
import os
import shutil
from pathlib import Path


class Disk:
    """The folder `root`, with the shim's notes in `log` and its second names in `grave`."""

    def __init__(self, root, log, grave):
        self.root, self.log, self.grave = Path(root), Path(log), Path(grave)
        self.settle()

    def settle(self):
        """All that is there now counts as synced."""
        shutil.rmtree(self.grave, ignore_errors=True)
        self.grave.mkdir()
        self.log.write_bytes(b"")
        self.names, self.synced_size = {}, {}
        for folder, folders, files in os.walk(self.root):
            found = self.names[os.stat(folder).st_ino] = {}
            for name in folders + files:
                info = os.lstat(os.path.join(folder, name))
                found[name] = info.st_ino
                self.synced_size[info.st_ino] = info.st_size

    def environment(self):
        return {"CHAOS_LOG": str(self.log), "CHAOS_GRAVE": str(self.grave)}

    def cut(self, random):
        """Cuts the power. Returns what is sure to be there: the names that runs had renamed to and
        synced, newest last, each with the folder's inode; and what was chosen, in words."""
        journal = random.random() < 0.3
        notes = Notes(self, journal)
        survivors, how = choose(notes.pending, random, journal)
        for change in survivors:
            notes.apply(change)
        paths = self.paths()
        rebuilt = self.root.with_name(self.root.name + "-rebuilt")
        lost = []
        self.build(rebuilt, self.root.stat().st_ino, notes, paths, random, lost)
        shutil.rmtree(self.root)
        rebuilt.rename(self.root)
        shutil.rmtree(self.grave)
        self.settle()
        kept = f"{len(survivors)} of {len(notes.pending)} changes of names kept ({how})"
        return notes.reported, f"{kept}; {', '.join(lost) or 'no bytes lost'}"

    def paths(self):
        """Where the bytes of each inode are now."""
        found = {int(entry.name): entry.path for entry in os.scandir(self.grave)}
        for folder, _, files in os.walk(self.root):
            for name in files:
                path = os.path.join(folder, name)
                found[os.lstat(path).st_ino] = path
        return found

    def build(self, to, inode, notes, paths, random, lost):
        to.mkdir()
        for name, child in notes.names[inode].items():
            if child in notes.names:
                self.build(to / name, child, notes, paths, random, lost)
            elif child in paths:
                shutil.copyfile(paths[child], to / name, follow_symlinks=False)
                if child in notes.unsynced:
                    lost.append(damage_unsynced(to / name, notes.size(child),
                                                notes.unsynced[child], random))


class Notes:
    """The shim's log, read: what is sure, what is pending."""

    def __init__(self, disk, journal):
        self.names = {inode: dict(names) for inode, names in disk.names.items()}
        self.synced_size = dict(disk.synced_size)
        self.unsynced = {}  # inode: ranges of bytes written since its last fsync
        self.pending = []  # changes of names: [(folder, name, inode or None), …]
        self.reported = []
        for line in disk.log.read_text().splitlines():
            self.read(line.split("\t"), journal)

    def read(self, words, journal):
        kind, numbers = words[0], words[1:]
        if kind == "make":
            folder, name, inode, what = int(words[1]), words[2], int(words[3]), words[4]
            if what == "d":
                self.names[inode] = {}
            elif what == "f":
                self.synced_size[inode], self.unsynced[inode] = 0, []
            self.pending.append([(folder, name, inode)])
        elif kind == "remove":
            self.pending.append([(int(words[1]), words[2], None)])
        elif kind == "move":
            source, target = (int(words[1]), words[2]), (int(words[3]), words[4])
            other = int(words[6]) or None
            self.pending.append([(*target, int(words[5])), (*source, other)])
        elif kind == "write":
            self.unsynced.setdefault(int(words[1]), []).append((int(words[2]), int(words[3])))
        elif kind == "size":
            inode, size = map(int, numbers)
            if size < self.size(inode):
                self.synced_size[inode] = size
            self.unsynced.setdefault(inode, [])
        elif kind == "sync":
            self.sync(int(words[1]), journal)

    def size(self, inode):
        return self.synced_size.get(inode, 0)

    def sync(self, inode, journal):
        if inode not in self.names:
            ends = [end for _, end in self.unsynced.pop(inode, [])]
            self.synced_size[inode] = max([self.size(inode), *ends])
            if not journal:
                return
        sure, pending = [], []
        for change in self.pending:
            is_sure = journal or any(folder == inode for folder, _, _ in change)
            (sure if is_sure else pending).append(change)
        self.pending = pending
        for change in sure:
            self.apply(change)
        # Only the folder's own fsync is a promise to a user, whatever a journal keeps besides.
        self.reported += [(folder, name) for change in sure if len(change) == 2
                          for folder, name, _ in change[:1] if folder == inode]

    def apply(self, change):
        for folder, name, inode in change:
            names = self.names.setdefault(folder, {})
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode


def choose(pending, random, journal):
    """The changes of names that reached the disk, and the choice in words."""
    how = random.choice(["all", "none", "first ones"] + ([] if journal else ["any"]))
    if how == "none":
        return [], how
    if how == "first ones":
        return pending[:random.randrange(len(pending) + 1)], how
    if how == "any":
        return [change for change in pending if random.random() < 0.5], how
    return pending, how


def damage_unsynced(path, synced, ranges, random):
    """Takes away what need not be there of a file with unsynced bytes; says what it did."""
    size = path.stat().st_size
    how = random.choice(["kept", "lost", "cut", "zeros"])
    if how == "lost" and size > synced:
        os.truncate(path, synced)
    elif how == "cut" and size > synced:
        os.truncate(path, random.randint(synced, size))
    elif how == "zeros":
        with open(path, "r+b") as file:
            for start, end in ranges:
                if random.random() < 0.5 and start < size:
                    file.seek(start)
                    file.write(bytes(min(end, size) - start))
    return f"{path.name}: {how}"
