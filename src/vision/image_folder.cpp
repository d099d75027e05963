#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/vision/image_dataset.h>

#include <algorithm>
#include <set>

namespace gradus {
namespace fs = std::filesystem;
namespace {

/// Extensions of images. Those that cannot be decoded are listed too: leaving them out silently
/// would change the data.
constexpr std::string_view kImageExtensions[] = {
    ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".gif", ".tif",  ".tiff",
    ".ppm", ".pgm",  ".pbm", ".pnm",  ".ico", ".tga",  ".jp2",  ".j2k", ".dib", ".avif", ".heic"};

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& message,
                                const std::string& advice) {
  throw Error("G-IMG-5", ErrorKind::data, fmt::format("{}: {}", folder.string(), message), advice);
}

bool is_image_name(const fs::path& file) {
  auto extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  return std::find(std::begin(kImageExtensions), std::end(kImageExtensions), extension) !=
         std::end(kImageExtensions);
}

bool is_hidden(const std::string& name) { return name.starts_with(".") || name.starts_with("__"); }

/// All images below `folder`, by path. Links to folders are not followed.
std::vector<std::string> image_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename().string();
    std::error_code ignored;
    if (is_hidden(name)) {
      if (entry->is_directory(ignored)) entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file(ignored)) continue;
    if (name == "metadata.csv" || name == "metadata.jsonl" || name == "metadata.parquet")
      refuse_folder(
          folder,
          "it holds " + entry->path().string() + ", which takes the place of the folders' names",
          "Remove the file, or write the data as Parquet with an image and a label "
          "column and name it with --dataset_name.");
    if (is_image_name(entry->path())) files.push_back(entry->path().string());
  }
  if (error)
    throw Error("G-IO-1", ErrorKind::io,
                fmt::format("cannot read the folder {}: {}", folder.string(), error.message()),
                "Check the path and its permissions.");
  if (files.empty())
    refuse_folder(folder, "it holds no image",
                  "Expected one folder per class with PNG, JPEG or WebP files in it.");
  std::sort(files.begin(), files.end());
  return files;
}

std::string class_of(const std::string& file) {
  return fs::path(file).parent_path().filename().string();
}

class FolderImages final : public ImageSource {
 public:
  FolderImages(std::vector<std::string> files, std::vector<std::string> names)
      : files_(std::move(files)), names_(std::move(names)) {
    labels_.reserve(files_.size());
    for (const auto& file : files_)
      labels_.push_back(std::lower_bound(names_.begin(), names_.end(), class_of(file)) -
                        names_.begin());
  }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  EncodedImage image(int64_t index) const override {
    const auto& file = files_[static_cast<size_t>(index)];
    return {read_file(file), file};
  }
  int64_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }
  std::string name(int64_t index) const override { return files_[static_cast<size_t>(index)]; }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  std::vector<std::string> files_, names_;
  std::vector<int64_t> labels_;
};

}  // namespace

std::vector<std::shared_ptr<ImageSource>> image_folders(const std::vector<fs::path>& directories) {
  std::vector<std::vector<std::string>> files;
  std::set<std::string> names;
  for (const auto& directory : directories) {
    files.push_back(image_files(expand_user(directory)));
    std::set<std::ptrdiff_t> depths;
    for (const auto& file : files.back()) {
      names.insert(class_of(file));
      depths.insert(std::count(file.begin(), file.end(), '/'));
    }
    if (depths.size() > 1)
      refuse_folder(directory,
                    "its images lie at different depths, so that their folders' names "
                    "are no classes",
                    "Put every image into a folder of its class, and these side by side.");
  }
  if (names.size() < 2)
    refuse_folder(directories.front(),
                  fmt::format("there is one class only ('{}'), expected at least two folders",
                              names.empty() ? "" : *names.begin()),
                  "Put the images of each class into a folder of its own.");
  std::vector<std::shared_ptr<ImageSource>> sources;
  for (auto& each : files)
    sources.push_back(std::make_shared<FolderImages>(
        std::move(each), std::vector<std::string>(names.begin(), names.end())));
  return sources;
}

}  // namespace gradus
