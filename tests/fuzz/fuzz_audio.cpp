#include <gradus/audio/audio.h>
#include <gradus/core/error.h>

#include <string>

#include "fuzz/fuzz_target.h"

namespace {

/// Damaged pages of an OGG file would be refused for their checksums before anybody reads them.
void mend_pages(std::string& file) {
  for (size_t page = file.find("OggS"); page != std::string::npos;) {
    if (page + 27 > file.size()) return;
    const auto next = file.find("OggS", page + 4);
    const auto end = next == std::string::npos ? file.size() : next;
    for (size_t i = 22; i < 26; ++i) file[page + i] = 0;
    uint32_t sum = 0;
    for (size_t i = page; i < end; ++i) {
      sum ^= uint32_t(static_cast<unsigned char>(file[i])) << 24;
      for (int bit = 0; bit < 8; ++bit)
        sum = (sum & 0x80000000u) != 0 ? sum << 1 ^ 0x04c11db7u : sum << 1;
    }
    for (size_t i = 0; i < 4; ++i) file[page + 22 + i] = static_cast<char>(sum >> 8 * i);
    page = next;
  }
}

}  // namespace

/// Any bytes give at least the sound that the header promises, or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (file.starts_with("OggS")) mend_pages(file);
  gradus::AudioOptions options;
  options.max_seconds = 60;
  try {
    const auto info = gradus::audio_info(file, "input");
    const auto clip = gradus::decode_audio(file, "input", options);
    if (clip.samples.numel() < info.frames || clip.sampling_rate != info.sampling_rate)
      __builtin_trap();
    options.sampling_rate = 16000;
    if (gradus::decode_audio(file, "input", options).sampling_rate != 16000) __builtin_trap();
  } catch (const gradus::Error&) {
  }
  return 0;
}
