#pragma once

#include <gradus/data/load_dataset.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/sources/byte_stream.h"

namespace gradus::sources {

/// Text and JSON files as data sets: the place of every row is remembered, the row itself parsed
/// when asked for.
std::shared_ptr<TableDataset> load_text(const std::vector<SourceFile>& files,
                                        const LoadOptions& options);
std::shared_ptr<TableDataset> load_json(const std::vector<SourceFile>& files,
                                        const LoadOptions& options);

/// Whether the rows of this JSON file are its lines, rather than elements of one document. Reads
/// only its beginning.
bool has_json_lines(std::unique_ptr<ByteStream> bytes, Format format);

/// One past the end of the line that begins at `from`, its break included. `universal`: a lone "\r"
/// ends a line too.
size_t line_end(std::string_view bytes, size_t from, bool universal);

/// The row of a raw line, paragraph or document: line breaks become "\n", the one(s) at the end go
/// unless kept.
Example text_row(std::string_view raw, const LoadOptions& options);

/// `line` is blank.
bool is_blank(std::string_view line);

}  // namespace gradus::sources
