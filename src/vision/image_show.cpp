#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/vision/decode.h>
#include <gradus/vision/image_show.h>
#include <png.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/html.h"
#include "core/list_folder.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kThumbnail = 160;  // longest side in pixels

const char* format_name(ImageFormat format) {
  switch (format) {
    case ImageFormat::png: return "PNG";
    case ImageFormat::jpeg: return "JPEG";
    default: return "WebP";
  }
}

std::string label_of(const ImageSource& source, int64_t row) {
  const auto& names = source.class_names();
  const auto number = static_cast<size_t>(source.label(row));
  return number < names.size() ? names[number] : "";
}

OrderedJson describe_image(const ImageSource& source, int64_t row) {
  OrderedJson line = {{"row", row}, {"name", source.name(row)}, {"label", label_of(source, row)}};
  try {
    const auto encoded = source.image(row);
    line["bytes"] = int64_t(encoded.bytes.size());
    const auto info = image_info(encoded.bytes, {.name = encoded.name});
    line["format"] = format_name(info.format);
    line["width"] = info.width;
    line["height"] = info.height;
  } catch (const Error& error) {
    line["error"] = error.message();
  }
  return line;
}

OrderedJson range_of(const std::vector<int64_t>& values) {
  double sum = 0;
  for (const auto value : values) sum += double(value);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"min", *least}, {"mean", sum / double(values.size())}, {"max", *most}};
}

std::string thumbnail(const ImageSource& source, int64_t row) {
  const auto encoded = source.image(row);
  const auto image = decode_image(encoded.bytes, {.name = encoded.name});
  const auto longest = std::max(image.size(0), image.size(1));
  const double scale = std::min(1.0, double(kThumbnail) / double(longest));
  const auto side = [&](int64_t size) {
    return std::max<int64_t>(1, int64_t(double(size) * scale));
  };
  return encode_png(resize_image(image, side(image.size(0)), side(image.size(1))));
}

std::string size_text(const OrderedJson& line) {
  if (line.contains("error")) return line["error"].get<std::string>();
  return fmt::format("{} x {} {}, {} bytes", line["width"].get<int64_t>(),
                     line["height"].get<int64_t>(), line["format"].get<std::string>(),
                     line["bytes"].get<int64_t>());
}

}  // namespace

std::string encode_png(const torch::Tensor& given) {
  const auto pixels = given.contiguous();
  if (pixels.scalar_type() != at::kByte || pixels.dim() != 3 || pixels.size(2) != 3 ||
      pixels.numel() == 0)
    throw Error("G-IMG-8", ErrorKind::data,
                "cannot write a PNG file: expected uint8 (height, width, 3)",
                "Give what decode_image returns.");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.const_data_ptr(), 0,
                                nullptr) == 0)
    throw Error("G-IMG-8", ErrorKind::internal,
                fmt::format("cannot write a PNG file: {}", image.message), "");
  file.resize(size);
  return file;
}

bool is_image_folder(const fs::path& folder) {
  static constexpr std::string_view kData[] = {".parquet", ".arrow", ".csv", ".tsv",
                                               ".json",    ".jsonl", ".txt", ".bin"};
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return false;
  for (const auto& path : list_folder(folder))
    if (std::find(std::begin(kData), std::end(kData), path.extension().string()) != std::end(kData))
      return false;
  for (fs::recursive_directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored))
    for (const auto* extension : {".png", ".jpg", ".jpeg", ".webp", ".PNG", ".JPG", ".JPEG"})
      if (entry->path().extension() == extension) return true;
  return false;
}

OrderedJson image_show(const ImageSource& source, const ImageShowOptions& options) {
  const auto rows = source.size();
  const auto sampled = options.sample > 0 ? std::min(options.sample, rows) : rows;
  std::map<std::string, int64_t> formats;
  std::vector<int64_t> classes(source.class_names().size());
  std::vector<int64_t> widths, heights, sizes;
  int64_t unreadable = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (static_cast<size_t>(source.label(i)) < classes.size())
      ++classes[static_cast<size_t>(source.label(i))];
  for (int64_t i = 0; i < sampled; ++i) {
    const auto line = describe_image(source, int64_t(double(i) * double(rows) / double(sampled)));
    if (line.contains("error")) {
      ++unreadable;
      continue;
    }
    ++formats[line["format"].get<std::string>()];
    widths.push_back(line["width"].get<int64_t>());
    heights.push_back(line["height"].get<int64_t>());
    sizes.push_back(line["bytes"].get<int64_t>());
  }
  OrderedJson report = {{"rows", rows}, {"sampled_rows", sampled}, {"unreadable", unreadable}};
  report["classes"] = OrderedJson::object();
  for (size_t i = 0; i < classes.size(); ++i)
    report["classes"][source.class_names()[i]] = classes[i];
  report["formats"] = formats;
  if (!widths.empty()) {
    report["width"] = range_of(widths);
    report["height"] = range_of(heights);
    report["bytes"] = range_of(sizes);
  }
  report["first_rows"] = OrderedJson::array();
  for (int64_t i = 0; i < std::min(options.rows, rows); ++i)
    report["first_rows"].push_back(describe_image(source, i));
  return report;
}

std::string format_image_show(const OrderedJson& report) {
  auto out = fmt::format("{} images", report["rows"].get<int64_t>());
  if (report["sampled_rows"] != report["rows"])
    out += fmt::format(" (sizes below from {} of them)", report["sampled_rows"].get<int64_t>());
  if (report["unreadable"].get<int64_t>() > 0)
    out += fmt::format(", {} cannot be read", report["unreadable"].get<int64_t>());
  out += "\n\nclasses\n";
  for (const auto& [name, count] : report["classes"].items())
    out += fmt::format("  {:<32} {:>8}\n", name, count.get<int64_t>());
  out += "\nformats\n";
  for (const auto& [name, count] : report["formats"].items())
    out += fmt::format("  {:<32} {:>8}\n", name, count.get<int64_t>());
  for (const auto* key : {"width", "height", "bytes"})
    if (report.contains(key))
      out +=
          fmt::format("  {}: min {}, mean {:.1f}, max {}\n", key, report[key]["min"].get<int64_t>(),
                      report[key]["mean"].get<double>(), report[key]["max"].get<int64_t>());
  out += "\n";
  for (const auto& line : report["first_rows"])
    out += fmt::format("row {:<6} {:<20} {}  {}\n", line["row"].get<int64_t>(),
                       line["label"].get<std::string>(), size_text(line),
                       line["name"].get<std::string>());
  return out;
}

std::string image_show_html(const ImageSource& source, const OrderedJson& report,
                            const std::string& title) {
  auto out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font-family:sans-serif;margin:2em}}main{{display:flex;flex-wrap:wrap;gap:1em}}"
      "figure{{margin:0;width:180px}}img{{max-width:160px;image-rendering:pixelated}}"
      "figcaption{{font-size:.8em;overflow-wrap:anywhere}}</style></head>\n<body><h1>{0}</h1>\n"
      "<p>{1} images</p>\n<main>\n",
      escaped_html(title), report["rows"].get<int64_t>());
  for (const auto& line : report["first_rows"]) {
    std::string picture;
    try {
      picture = "<img alt=\"\" src=\"data:image/png;base64," +
                base64(thumbnail(source, line["row"].get<int64_t>())) + "\">";
    } catch (const Error& error) {
      picture = "<p>" + escaped_html(error.message()) + "</p>";
    }
    out +=
        fmt::format("<figure>{}<figcaption><b>{}</b><br>{}<br>{}</figcaption></figure>\n", picture,
                    escaped_html(line["label"].get<std::string>()), escaped_html(size_text(line)),
                    escaped_html(line["name"].get<std::string>()));
  }
  return out + "</main></body></html>\n";
}

}  // namespace gradus
