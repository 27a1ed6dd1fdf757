#include "data/array/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/file/byte_reader.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

// Sets that fit into memory or not, mapped or in memory, at any address.
TEST(ReadAhead, LeavesTheBytesUnchanged) {
  const TemporaryDirectory dir;
  const std::string contents(20000, 'x');
  WriteText(dir / "file", contents);
  const auto mapped = ReadFileBytes(dir / "file");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const SharedBytes own(std::vector<uint8_t>(contents.begin(), contents.end()));
  const std::vector<SharedBytes> parts = {*mapped, own, SharedBytes()};
  for (const size_t memory : {size_t{0}, PhysicalMemory()}) {
    const ReadAhead read_ahead(parts, memory);
    for (const SharedBytes& part : parts) {
      for (size_t at = 0; at < part.size(); at += 4999) read_ahead.Fetch(part.span().subspan(at, 3000));
      EXPECT_THAT(part, testing::Each('x'));
    }
  }
}

}  // namespace
}  // namespace cairn::data
