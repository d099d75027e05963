#pragma once

#include <gradus/trackers/tracker.h>

#include <cstdint>
#include <string>
#include <string_view>

/// The few messages of TensorBoard's protocol buffers that we write, encoded by hand.
namespace gradus::event_proto {

/// Appends fields to a message. Field numbers are those of TensorFlow's .proto files.
class Message {
 public:
  Message& varint(int field, uint64_t value);
  Message& fixed64(int field, double value);
  Message& bytes(int field, std::string_view value);
  const std::string& data() const { return data_; }

 private:
  void raw_varint(uint64_t value);
  std::string data_;
};

/// Appends a `Summary.value` entry with a scalar: every log writes some, so this is the short way.
void append_scalar(std::string& summary, std::string_view tag, float value);
/// `Summary.Value` of a histogram (`HistogramProto`).
std::string histogram_value(const std::string& tag, const Histogram& histogram);
/// `Summary.Value` of a text, as the text plugin wants it.
std::string text_value(const std::string& tag, const std::string& text);
/// `Summary.Value` that only carries data of a plugin.
std::string plugin_value(const std::string& tag, const std::string& plugin,
                         const std::string& content);

/// A summary of one or more values as an event.
std::string summary_event(double wall_time, int64_t step, const std::string& values);
/// The first event of every file.
std::string version_event(double wall_time);
/// Says that steps from `step` on that came before are superseded.
std::string restart_event(double wall_time, int64_t step);

/// One `Summary.value` entry, for joining.
std::string summary_entry(const std::string& value);

/// An event as a TFRecord: length, its checksum, bytes, their checksum.
std::string record(std::string_view event);
/// CRC-32C, masked as TFRecord wants it.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace gradus::event_proto
