#pragma once

#include <span>
#include <string_view>

namespace gradus::cli {

/// A file of the page that `gradus serve` shows, as it lies in the program.
struct PageFile {
  std::string_view name;  ///< "index.html"
  std::string_view type;  ///< its media type
  std::string_view content;
};

/// All files of the page; none in a build without the plotting library (cmake/EmbedPage.cmake).
std::span<const PageFile> page_files();

}  // namespace gradus::cli
