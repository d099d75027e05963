#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gradus {

/// The whole file. Throws G-IO-1 with the system's reason.
std::string read_file(const std::filesystem::path& file);

/// Replaces `file` by `content` so that a reader (and a crash) sees the old or the new file, never
/// a part: written under a temporary name in the same folder, synced, renamed. Throws G-IO-2; the
/// old file then stays.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);

/// Creates the folder and its parents. Throws G-IO-3 when the path is a file or may not be written.
void make_directory(const std::filesystem::path& directory);

/// Flushes a file's or folder's content to the disk. Throws G-IO-2.
void sync_path(const std::filesystem::path& path);

/// Renames a folder that is complete to its final name and syncs the parent. Throws G-IO-2.
void publish_directory(const std::filesystem::path& temporary,
                       const std::filesystem::path& final_name);

/// Renames a file, replacing one of the new name. Throws G-IO-2.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// `~` and `~/x` with the user's home folder.
std::filesystem::path expand_user(const std::filesystem::path& path);

/// The text of `errno`-style code `code`: "No space left on device".
std::string system_reason(int code);

}  // namespace gradus
