#include "verify/element.h"

#include "reference/quantize.h"

namespace intact::verify {

double ElementValue(intact_type type, const uint8_t* element) {
  switch (type) {
    case INTACT_TYPE_NONE:
      break;
    case INTACT_U8:
      return *element;
    case INTACT_S8:
      return static_cast<int8_t>(*element);
    case INTACT_S32: {
      int32_t value = 0;
      std::memcpy(&value, element, sizeof value);
      return value;
    }
    case INTACT_F32: {
      float value = 0;
      std::memcpy(&value, element, sizeof value);
      return value;
    }
    case INTACT_BF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, element, sizeof bits);
      return reference::FromBfloat16(bits);
    }
  }
  return 0;
}

}  // namespace intact::verify
