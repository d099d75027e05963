#pragma once

#include <memory>
#include <vector>

#include "data/sources/file_rows.h"

namespace gradus::sources {

/// CSV files, read into memory. Throws G-SRC-4, G-SRC-6 to G-SRC-8, and G-SRC-9 without Arrow.
///
/// `block_size`: bytes that are parsed at a time; it decides speed and memory, not the rows.
std::shared_ptr<TableDataset> load_csv(const std::vector<SourceFile>& files,
                                       const LoadOptions& options,
                                       size_t block_size = size_t{4} << 20);

/// A CSV file from front to back, of which the first `block_size` bytes decide the types of the
/// columns. Throws as `load_csv` does.
std::unique_ptr<FileRows> open_csv_rows(const SourceFile& file, const LoadOptions& options,
                                        std::shared_ptr<BadRows> bad_rows,
                                        size_t block_size = size_t{1} << 20);

}  // namespace gradus::sources
