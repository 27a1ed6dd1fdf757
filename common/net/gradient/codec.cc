#include "common/net/gradient/codec.h"

namespace cairn::net {

const GradientCodec* GradientCodecOf(v1::Encoding encoding) {
  switch (encoding) {
    case v1::ENCODING_INT8:
      return &Int8Codec();
    case v1::ENCODING_TOPK:
      return &TopKCodec();
    case v1::ENCODING_ONEBIT:
      return &OneBitCodec();
    default:
      return nullptr;
  }
}

}  // namespace cairn::net
