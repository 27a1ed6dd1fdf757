// .npy and .npz files written by hand, both valid and invalid ones.
#pragma once

#include <gtest/gtest.h>
#include <zip.h>

#include <map>
#include <string>

#include "tests/unit/data/data_files.h"

namespace cairn::data {

inline std::string NpyWithHeader(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string npy = "\x93NUMPY" + Bytes({version, 0});
  const size_t before = npy.size() + (version == 1 ? 2 : 4);
  std::string header = dictionary;
  while ((before + header.size() + 1) % 64 != 0) header.push_back(' ');
  header.push_back('\n');
  const auto size = static_cast<int>(header.size());
  npy += version == 1 ? Bytes({size & 255, size >> 8}) : Bytes({size & 255, size >> 8, 0, 0});
  return npy + header + data;
}

// descr "<f4", shape "(2, 3)"
inline std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return NpyWithHeader("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

inline void WriteNpz(const std::string& path, const std::map<std::string, std::string>& members,
                     zip_int32_t method = ZIP_CM_STORE) {
  std::filesystem::remove(path);
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, contents] : members) {
    const auto index = zip_file_add(archive, name.c_str(),
                                    zip_source_buffer(archive, contents.data(), contents.size(), 0), 0);
    ASSERT_GE(index, 0);
    ASSERT_EQ(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 0), 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

}  // namespace cairn::data
