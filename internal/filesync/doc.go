// Package filesync copies a file or a folder to another machine over one
// connection, and only what differs. [Send] runs where the files are, [Serve]
// where they go; nothing else is needed on either side. [Walk] says what
// would be sent.
//
// Kept are content, permissions, times of files and folders, symlinks as
// links, and empty folders. Owners, hard links, setuid bits, devices, sockets
// and pipes are not copied. With Options.Mirror the receiver remembers what it
// brought; what the source has no more is removed if nobody changed it since, and
// nothing else ever is. A file that stands where the source has a folder, or the
// other way round, goes if it was brought like this; otherwise it is an error
// before anything is changed. Two files of the same size and time are
// taken for the same; of the same size only, when their hashes are equal.
//
// # Safety
//
// Nothing is written before the source was listed as a whole and compared.
// The receiver reaches everything through descriptors of folders, follows no
// symlink below the destination, and bounds what it keeps for a peer. A file
// gets its name when it is complete, by a rename, so that a killed receiver
// leaves no half file under a real name; what it does leave is named
// ".sky-sync-….part" (a large file, continued by the next sync of the same
// file) or ".sky-sync-….temp", and is removed by the next sync that succeeds.
// Syncs to the same destination come one after the other.
// Files are not flushed to the disk one by one: after a power failure the next
// sync repairs what was lost, since size or time differ then.
//
// # Protocol, version 2
//
// Both ends write frames: one byte for the kind, three for the length of the
// payload (little endian, at most 1 MiB), the payload. If bit 7 of the kind is
// set, the payload is the unpacked length and a zstd frame of the payload.
// Numbers are varints as in encoding/binary (signed ones zigzag), strings and
// byte strings have their length before them. Times are nanoseconds since
// 1970, modes the low nine bits.
//
// The sender writes
//
//	H  opening: "skysync", version, flags (1 a single file, 2 contents), destination,
//	   from version 2 on the mirror
//	D  parts of folders: id, path, mode, time, entries; an entry is name,
//	   mode·2 + (1 for a link), time minus the one before it, then size or target
//	M  the list is whole: number of parts of folders
//	F  small files: part, entry, how (0 content, 1 what you have is right,
//	   2 it has changed: size, time, mode, content)
//	C  a piece of a large file: part, entry, flags (1 last: BLAKE3 hash of the file,
//	   2 it has changed: size, time, mode, and start anew, 4 zeros: their number),
//	   offset, what the flags say, content
//	Z  end: everything wanted was sent
//	X  end: the sender gave up, and why
//	P  ping, from both: slow work goes on
//
// and the receiver, without being waited for,
//
//	W  wants: part, number of entries (0: every file), each with the length and
//	   BLAKE3 hash of what is there already (0: nothing), whole or the start
//	N  there will be no more wants
//	O  done: 0, with a mirror how much was removed, or the code and texts of an error
//
// A sync ends when the sender has written Z or X and the receiver O; the next
// one may follow on the same connection. Content is sent only after M, and
// nothing is changed at the receiver before it has come. Frames are compressed
// when the connection is slower than the sender. Neither end waits longer than
// its timeout while nothing moves, and pings only while its own work moves.
package filesync
