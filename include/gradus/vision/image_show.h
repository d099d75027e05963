#pragma once

#include <gradus/vision/image_dataset.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradus {

/// Options of `image_show`.
struct ImageShowOptions {
  int64_t rows = 3;         ///< First images to describe one by one.
  int64_t sample = 10'000;  ///< Images whose headers are read, spread evenly; 0: all.
};

/// What is in a set of images: `{"rows", "sampled_rows", "unreadable", "classes": {name: count},
/// "formats": {name: count}, "width": {"min", "mean", "max"}, "height": {…}, "bytes": {…},
/// "first_rows": [{"row", "name", "label", "format", "width", "height", "bytes"}]}`. A row that
/// cannot be read has "error" in place of its size. Only headers are read.
nlohmann::ordered_json image_show(const ImageSource& source, const ImageShowOptions& options = {});

/// The same for people: the counts, then one line for each of the first rows.
std::string format_image_show(const nlohmann::ordered_json& report);

/// The first rows as a page with thumbnails, which needs no other file. `title` is shown on top.
/// Texts of files are escaped.
std::string image_show_html(const ImageSource& source, const nlohmann::ordered_json& report,
                            const std::string& title);

/// Whether `folder` is a folder of images rather than of data files: it has an image somewhere
/// below and no data file itself.
bool is_image_folder(const std::filesystem::path& folder);

/// An image as a PNG file: uint8 (height, width, 3) to bytes. Throws `Error` G-IMG-8 for another
/// tensor.
std::string encode_png(const torch::Tensor& image);

}  // namespace gradus
