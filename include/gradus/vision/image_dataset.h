#pragma once

#include <gradus/data/table_dataset.h>
#include <gradus/vision/image_processor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// An image that is not decoded yet.
struct EncodedImage {
  std::string bytes = {};  ///< The content of a PNG, JPEG or WebP file.
  std::string name = {};   ///< For messages: the file, or the row of a table.
};

/// Images with a class each, decoded by others.
///
/// Thread-safety: all members are const and are called from several loader threads at once.
struct ImageSource {
  virtual ~ImageSource() = default;
  /// The number of images.
  virtual int64_t size() const = 0;
  /// Reads an image. Throws `Error` when its file or row cannot be read.
  virtual EncodedImage image(int64_t index) const = 0;
  /// The class of an image: a place in `class_names()`.
  virtual int64_t label(int64_t index) const = 0;
  /// How messages call an image, without reading it.
  virtual std::string name(int64_t index) const = 0;
  /// The names of the classes, sorted for folders, as stored for tables.
  virtual const std::vector<std::string>& class_names() const = 0;
};

/// The class folders below `directories`: the class of an image is the name of the folder it lies
/// in. Reads the rows of each directory in the order of their paths, as `load_dataset
/// ("imagefolder")` of `datasets` does, and gives one source per directory; all share the names of
/// the classes of all. Hidden files and folders are left out. Throws `Error` G-IMG-5 when a folder
/// has no image, when there are fewer than two classes, when images lie at different depths, and
/// when a metadata file takes the place of the folders' names.
std::vector<std::shared_ptr<ImageSource>> image_folders(
    const std::vector<std::filesystem::path>& directories);

/// What `image_table` reads of a table.
struct ImageTableOptions {
  std::string image_column = "image";  ///< A struct of `bytes` and `path`, bytes, or a path.
  std::string label_column = "label";  ///< A class by number, or a name; empty: none.
  /// The names of the classes; empty: those that the column has itself (`datasets.ClassLabel`),
  /// else the labels that occur, sorted.
  std::vector<std::string> class_names = {};
  /// Where the labels are read; unset: the table itself. A table of this column alone spares
  /// reading every image for its label.
  std::shared_ptr<const Dataset> labels = nullptr;
  std::string where = "the data";     ///< Names the table in messages.
  std::filesystem::path folder = {};  ///< Where paths that are not absolute begin.
};

/// The images of a table, as `datasets.Image` stores them in Parquet, Arrow or JSON files. Throws
/// `Error` G-SRC-6 when a column is missing, G-IMG-5 for a label that is none of the classes.
std::shared_ptr<ImageSource> image_table(std::shared_ptr<const Dataset> table,
                                         const std::vector<ColumnInfo>& columns,
                                         ImageTableOptions options = {});

/// How images become the `pixel_values` of a batch.
struct ImageTransform {
  int64_t height = 224;  ///< Of the result.
  int64_t width = 224;   ///< Of the result.
  /// Evaluation: the shorter side is resized to this and the middle is cut out. Unset: the image is
  /// resized to `height` and `width`, whatever its shape.
  std::optional<int64_t> shortest_edge = std::nullopt;
  PixelScale scale = {};  ///< From bytes to numbers.
  /// Training: a random part of the image, mirrored every other time, in place of the whole.
  bool augment = false;
  /// Decodes a JPEG at 1/2, 1/4 or 1/8 of its size where the result is no larger than that. Faster,
  /// but the pixels differ a little.
  bool scaled_decoding = false;
};

/// What an image processor says about training or evaluation, as run_image_classification uses it.
ImageTransform image_transform(const ImageProcessor& processor, bool augment);

/// Rows {"pixel_values": float32 [3, height, width], "labels": int64}, decoded when they are read,
/// on the loader's threads.
///
/// Random parts and mirrorings come from one generator per batch, seeded like those of the
/// collators (collators.h), for the rows in their order. So a batch is the same for any number of
/// workers and after a resume.
std::shared_ptr<Dataset> image_dataset(std::shared_ptr<const ImageSource> source,
                                       std::vector<int64_t> rows, ImageTransform transform);

/// Those of `rows` whose images can be decoded. Warns about each that cannot, by name. Decodes all
/// of them, with `threads` threads (0: one per core). Throws `Error` G-IMG-7 when more than
/// `most_bad` cannot.
std::vector<int64_t> readable_images(const ImageSource& source, std::vector<int64_t> rows,
                                     int64_t most_bad, int64_t threads = 0);

}  // namespace gradus
