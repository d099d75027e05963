#pragma once

#include <cstdint>

namespace gradus::zip {

// Signatures and sizes of the parts of a zip file that both directions use (PKWARE appnote 6.3).
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEndRecord = 0x06054b50;
constexpr uint32_t kEndRecord64 = 0x06064b50;
constexpr uint32_t kEndLocator64 = 0x07064b50;

constexpr size_t kLocalHeaderSize = 30;
constexpr size_t kCentralHeaderSize = 46;
constexpr size_t kEndRecordSize = 22;
constexpr size_t kEndRecord64Size = 56;
constexpr size_t kEndLocator64Size = 20;

constexpr uint16_t kExtra64 = 0x0001;       // 64-bit sizes and offset
constexpr uint16_t kExtraPadding = 0x4246;  // torch's "FB": bytes that only align the content
constexpr uint16_t kFlagEncrypted = 0x0001;
constexpr uint16_t kFlagUtf8 = 0x0800;

constexpr uint32_t kIn64 = 0xFFFFFFFF;  // a 32-bit field whose value is in the 64-bit one
constexpr uint16_t kIn64Short = 0xFFFF;

}  // namespace gradus::zip
