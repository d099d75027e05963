#pragma once

#include <filesystem>

namespace gradus {

/// Opens a file for reading; the caller closes the descriptor. Throws G-IO-1 when the file cannot
/// be opened, and for a folder, FIFO, socket or device, without waiting for its other end.
int open_for_reading(const std::filesystem::path& file);

/// Throws G-IO-1 unless `file` is there and a regular file: for libraries that open a file
/// themselves.
void check_regular_file(const std::filesystem::path& file);

}  // namespace gradus
