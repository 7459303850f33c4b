/* Functions of libnorm.so.1 that the senders and receivers call. Its own header, of version 1.5.9, is no valid C. */
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int type;
    const void *session, *sender, *object;
} NormEvent;

enum { NORM_RX_OBJECT_UPDATED = 19, NORM_FLUSH_PASSIVE = 1 };

const void *NormCreateInstance(bool priority_boost);
bool NormGetNextEvent(const void *instance, NormEvent *event, bool wait);
int NormGetDescriptor(const void *instance);
const void *NormCreateSession(const void *instance, const char *group, uint16_t port, uint32_t node);
void NormSetUserData(const void *session, const void *data);
const void *NormGetUserData(const void *session);
bool NormSetMulticastInterface(const void *session, const char *name);
bool NormSetTTL(const void *session, unsigned char hops);
void NormSetTxRate(const void *session, double bits_per_second);
void NormSetCongestionControl(const void *session, bool enable, bool adjust_rate);
void NormSetGrttEstimate(const void *session, double seconds);
bool NormSetTxSocketBuffer(const void *session, unsigned bytes);
bool NormSetRxSocketBuffer(const void *session, unsigned bytes);
bool NormStartSender(const void *session, uint16_t id, uint32_t buffer, uint16_t segment, uint16_t data,
                     uint16_t parity, uint8_t fec);
bool NormStartReceiver(const void *session, uint32_t buffer);
const void *NormStreamOpen(const void *session, uint32_t buffer, const char *info, unsigned info_bytes);
void NormStreamSetPushEnable(const void *stream, bool enable);
unsigned NormStreamWrite(const void *stream, const char *data, unsigned bytes);
void NormStreamMarkEom(const void *stream);
void NormStreamFlush(const void *stream, bool end_of_message, int mode);
bool NormStreamRead(const void *stream, char *data, unsigned *bytes);
