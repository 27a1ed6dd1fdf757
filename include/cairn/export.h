// Marks the classes and functions that libcairn.so exports. Everything else in the library is hidden.
#pragma once

#define CAIRN_EXPORT [[gnu::visibility("default")]]
