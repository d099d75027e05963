#pragma once

#include <filesystem>

namespace gradus {

/// Whether the file's name ends as those of sound files do: .wav, .flac and so on.
bool is_sound_file(const std::filesystem::path& file);

}  // namespace gradus
