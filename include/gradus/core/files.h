#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gradus {

/// Reads a whole file. Throws `Error` G-IO-1 with the system's reason.
std::string read_file(const std::filesystem::path& file);

/// Replaces `file` by `content` so that a reader sees the old file or the new one, never a part,
/// even after a crash. The content is written to a temporary name in the same folder, synced and
/// renamed. Throws `Error` G-IO-2; the old file is then unchanged.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);

/// The same for a file whose name the user gave: a device or pipe that has it is written to, not
/// replaced, and so is what /dev/stdout and its kind lead to. Whether `file` is now a file that
/// holds the content.
bool write_named_file(const std::filesystem::path& file, std::string_view content);

/// Creates a folder and its parents. A folder that exists is left as it is. Throws `Error` G-IO-3
/// when the path is a file or the folder cannot be created.
void make_directory(const std::filesystem::path& directory);

/// Flushes the content of a file or folder to disk. Throws `Error` G-IO-2.
void sync_path(const std::filesystem::path& path);

/// Gives a finished folder its final name, and syncs its parent. Throws `Error` G-IO-2.
void publish_directory(const std::filesystem::path& temporary,
                       const std::filesystem::path& final_name);

/// Renames a file and replaces any file of the new name. Throws `Error` G-IO-2.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// Replaces a leading `~` by the user's home folder (`$HOME`). Other paths come back unchanged.
std::filesystem::path expand_user(const std::filesystem::path& path);

/// The text of an `errno` value, for example "No space left on device".
std::string system_reason(int code);

}  // namespace gradus
