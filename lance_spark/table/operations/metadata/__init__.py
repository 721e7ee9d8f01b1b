"""Operations that change no rows: schema projection, configuration, indexes, base paths."""
