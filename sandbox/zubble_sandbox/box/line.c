/* The line to the worker: frames in, answers out. Everything waits through `turn`, so commands go on meanwhile. */
#include "box.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int line_fd = -1;
bool line_lost = true;

static unsigned char request[MAX_FRAME_BYTES + 1];
static unsigned char chunk[CHUNK_BYTES];
static unsigned char out[HEADER_BYTES + OUT_BYTES];
static size_t out_used;
static struct {
    size_t at, size;
    bool ended;
} body;
static struct {
    const char *kind;
    int error;
    char sentence[256];
} refusal;

void put_number(unsigned char *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(number >> (24 - 8 * i));
}

uint32_t get_number(const unsigned char *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static bool line_read(unsigned char *data, size_t size)
{
    while (size > 0) {
        if (line_lost)
            return false;
        ssize_t got = read(line_fd, data, size);
        if (got > 0) {
            data += got;
            size -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            line_lost = true;
        } else {
            turn(POLLIN);
        }
    }
    return true;
}

static bool line_write(const unsigned char *data, size_t size)
{
    while (size > 0) {
        if (line_lost)
            return false;
        ssize_t put = write(line_fd, data, size);
        if (put >= 0) {
            data += put;
            size -= (size_t)put;
        } else if (errno != EAGAIN && errno != EINTR) {
            line_lost = true;
        } else {
            turn(POLLOUT);
        }
    }
    return true;
}

static bool receive_into(unsigned char *payload, size_t room, int *kind, uint32_t *call, size_t *size)
{
    unsigned char header[HEADER_BYTES];
    if (!line_read(header, sizeof header))
        return false;
    *size = get_number(header);
    *kind = header[4];
    *call = get_number(header + 5);
    if (*size > room)
        line_lost = true;
    return line_read(payload, *size) && !line_lost;
}

bool receive(int *kind, uint32_t *call, struct fields *fields)
{
    size_t size;
    if (!receive_into(request, MAX_FRAME_BYTES, kind, call, &size))
        return false;
    request[size] = 0;
    *fields = (struct fields){request, request + size};
    return true;
}

bool next_field(struct fields *fields, char **data, size_t *size)
{
    if (fields->end - fields->at < 4)
        return false;
    *size = get_number(fields->at);
    if (*size > (size_t)(fields->end - fields->at) - 4)
        return false;
    *data = (char *)fields->at + 4;
    fields->at += 4 + *size;
    return true;
}

/* A field is followed by the first byte of the next one's length or by the end of the request: both are 0. */
char *text_field(struct fields *fields)
{
    char *text;
    size_t size;
    return next_field(fields, &text, &size) && strlen(text) == size ? text : NULL;
}

double number_field(struct fields *fields)
{
    const char *text = text_field(fields);
    double number = text ? strtod(text, NULL) : 0;
    return number >= 0 && number < 1e18 ? number : 0;
}

void out_bytes(const void *data, size_t size)
{
    memcpy(out_place(), data, size);
    out_used += size;
}

void out_size(uint32_t size)
{
    put_number(out_place(), size);
    out_used += 4;
}

void out_field(const void *data, size_t size)
{
    out_size((uint32_t)size);
    out_bytes(data, size);
}

void out_text(const char *text)
{
    out_field(text, strlen(text));
}

size_t out_room(void)
{
    return out_used < CHUNK_BYTES ? CHUNK_BYTES - out_used : 0;
}

unsigned char *out_place(void)
{
    return out + HEADER_BYTES + out_used;
}

void out_skip(size_t size)
{
    out_used += size;
}

bool out_send(int kind, uint32_t call)
{
    put_number(out, (uint32_t)out_used);
    out[4] = (unsigned char)kind;
    put_number(out + 5, call);
    size_t size = HEADER_BYTES + out_used;
    out_used = 0;
    return line_write(out, size);
}

void body_begin(void)
{
    body.at = body.size = 0;
    body.ended = false;
}

/* 1 when there are bytes, 0 at the end, -1 when the line is lost. */
int body_more(uint32_t call)
{
    while (body.at == body.size && !body.ended) {
        int kind;
        uint32_t of;
        body.at = body.size = 0;
        if (!receive_into(chunk, sizeof chunk, &kind, &of, &body.size))
            return -1;
        if (of != call || (kind != CHUNK && kind != END)) {
            line_lost = true;
            return -1;
        }
        body.ended = kind == END;
    }
    return body.at < body.size;
}

bool body_piece(uint32_t call, unsigned char **data, size_t *size, size_t most)
{
    if (body_more(call) < 0)
        return false;
    size_t left = body.size - body.at;
    *data = chunk + body.at;
    *size = left < most ? left : most;
    body.at += *size;
    return true;
}

bool body_exactly(uint32_t call, void *data, size_t size)
{
    unsigned char *to = data, *piece;
    size_t got;
    while (size > 0) {
        if (!body_piece(call, &piece, &got, size) || got == 0)
            return false;
        memcpy(to, piece, got);
        to += got;
        size -= got;
    }
    return true;
}

bool body_field(uint32_t call, char *text, size_t room)
{
    unsigned char size[4];
    if (!body_exactly(call, size, sizeof size) || get_number(size) >= room)
        return false;
    text[get_number(size)] = 0;
    return body_exactly(call, text, get_number(size)) && strlen(text) == get_number(size);
}

void body_drain(uint32_t call)
{
    unsigned char *piece;
    size_t size;
    while (body_piece(call, &piece, &size, SIZE_MAX) && size > 0)
        continue;
}

int refuse_os(int error)
{
    refusal.kind = "os";
    refusal.error = error;
    refusal.sentence[0] = 0;
    return REFUSED;
}

int refuse_value(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal.sentence, sizeof refusal.sentence, format, arguments);
    va_end(arguments);
    refusal.kind = "value";
    refusal.error = 0;
    return REFUSED;
}

void send_refusal(uint32_t call)
{
    char number[16];
    snprintf(number, sizeof number, "%d", refusal.error);
    out_used = 0;
    out_text(refusal.kind);
    out_text(number);
    out_text(refusal.sentence);
    out_send(FAILED, call);
}
