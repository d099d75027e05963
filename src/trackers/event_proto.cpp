#include "trackers/event_proto.h"

#include <array>
#include <bit>
#include <cstring>

namespace gradus::event_proto {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i) out += char((value >> (8 * i)) & 0xff);
}

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

}  // namespace

void Message::raw_varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) data_ += char(value | 0x80);
  data_ += char(value);
}

Message& Message::varint(int field, uint64_t value) {
  raw_varint(uint64_t(field) << 3 | kVarint);
  raw_varint(value);
  return *this;
}

Message& Message::fixed64(int field, double value) {
  raw_varint(uint64_t(field) << 3 | kFixed64);
  append_little_endian(data_, std::bit_cast<uint64_t>(value));
  return *this;
}

Message& Message::bytes(int field, std::string_view value) {
  raw_varint(uint64_t(field) << 3 | kBytes);
  raw_varint(value.size());
  data_ += value;
  return *this;
}

void append_scalar(std::string& summary, std::string_view tag, float value) {
  const auto varint_size = [](uint64_t number) {
    size_t size = 1;
    for (; number >= 0x80; number >>= 7) ++size;
    return size;
  };
  const auto varint = [&](uint64_t number) {
    for (; number >= 0x80; number >>= 7) summary += char(number | 0x80);
    summary += char(number);
  };
  const size_t size = 1 + varint_size(tag.size()) + tag.size() + 1 + sizeof value;
  summary += char(1 << 3 | kBytes);  // an entry
  varint(size);
  summary += char(1 << 3 | kBytes);  // its tag
  varint(tag.size());
  summary += tag;
  summary += char(2 << 3 | kFixed32);  // its value
  append_little_endian(summary, std::bit_cast<uint32_t>(value));
}

std::string histogram_value(const std::string& tag, const Histogram& histogram) {
  double count = 0;
  for (const double each : histogram.counts) count += each;
  const auto packed = [](const std::vector<double>& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(double));  // little-endian, as everywhere here
  };
  const auto proto = Message()
                         .fixed64(1, histogram.min)
                         .fixed64(2, histogram.max)
                         .fixed64(3, count)
                         .fixed64(4, histogram.sum)
                         .fixed64(5, histogram.sum_squares)
                         .bytes(6, packed(histogram.limits))
                         .bytes(7, packed(histogram.counts))
                         .data();
  return Message().bytes(1, tag).bytes(5, proto).data();
}

std::string text_value(const std::string& tag, const std::string& text) {
  const auto dimension = Message().varint(1, 1).data();
  const auto shape = Message().bytes(2, dimension).data();
  const auto tensor = Message().varint(1, /*DT_STRING=*/7).bytes(2, shape).bytes(8, text).data();
  const auto metadata = Message().bytes(1, Message().bytes(1, "text").data()).data();
  return Message().bytes(1, tag + "/text_summary").bytes(8, tensor).bytes(9, metadata).data();
}

std::string plugin_value(const std::string& tag, const std::string& plugin,
                         const std::string& content) {
  const auto metadata =
      Message().bytes(1, Message().bytes(1, plugin).bytes(2, content).data()).data();
  return Message().bytes(1, tag).bytes(9, metadata).data();
}

std::string summary_entry(const std::string& value) { return Message().bytes(1, value).data(); }

std::string summary_event(double wall_time, int64_t step, const std::string& values) {
  return Message().fixed64(1, wall_time).varint(2, uint64_t(step)).bytes(5, values).data();
}

std::string version_event(double wall_time) {
  return Message().fixed64(1, wall_time).bytes(3, "brain.Event:2").data();
}

std::string restart_event(double wall_time, int64_t step) {
  return Message()
      .fixed64(1, wall_time)
      .varint(2, uint64_t(step))
      .bytes(7, Message().varint(1, /*START=*/1).data())
      .data();
}

uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ uint8_t(byte)) & 0xff];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string record(std::string_view event) {
  std::string out;
  append_little_endian(out, uint64_t(event.size()));
  append_little_endian(out, masked_crc32c(out));
  out += event;
  append_little_endian(out, masked_crc32c(event));
  return out;
}

}  // namespace gradus::event_proto
