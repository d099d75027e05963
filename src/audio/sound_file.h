#pragma once

#include <filesystem>
#include <string_view>

namespace gradus {

/// Whether the file's name ends as those of sound files do: .wav, .flac and so on.
bool is_sound_file(const std::filesystem::path& file);
/// Whether a cell of text holds a file's bytes, as a column of plain binary does, and not a path.
inline bool is_file_content(std::string_view cell) {
  return cell.find('\0') != std::string_view::npos;
}

}  // namespace gradus
