// Small data files written byte by byte, so that the readers are not tested with our own writers.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace cairn::data {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = ::testing::TempDir() + "/cairn-data-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

// An IDX header: type code and extents.
inline std::string IdxHeader(int type, std::initializer_list<uint32_t> extents) {
  std::string header = Bytes({0, 0, type, static_cast<int>(extents.size())});
  for (uint32_t extent : extents) {
    for (int shift : {24, 16, 8, 0}) header.push_back(static_cast<char>(extent >> shift));
  }
  return header;
}

// Removes the file first: ext4 waits for the disk if a file is truncated and rewritten.
inline void WriteText(const std::string& path, const std::string& contents) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << contents;
}

// Overwrites the beginning of a file, which may be mapped.
inline void WriteInPlace(const std::string& path, const std::string& contents) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << contents;
}

inline void WriteGzip(const std::string& path, const std::string& contents) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, contents.data(), static_cast<unsigned>(contents.size())),
            static_cast<int>(contents.size()));
  gzclose(file);
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace cairn::data
