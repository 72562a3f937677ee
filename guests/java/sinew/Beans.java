// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Classes of the user's from and to what JSON has: records by their components, others by getters, setters
 * and public fields.
 */
final class Beans {
    private static final int DEPTH_MAX = 200;

    private Beans() {}

    /** A value as one of this type. */
    static Object as(Object value, Type type) {
        if (type instanceof ParameterizedType) {
            ParameterizedType generic = (ParameterizedType) type;
            return as(value, (Class<?>) generic.getRawType(), generic.getActualTypeArguments());
        }
        if (type instanceof Class) return as(value, (Class<?>) type, new Type[0]);
        if (type instanceof GenericArrayType) return as(value, ((GenericArrayType) type).getGenericComponentType(), true);
        // A variable or a wildcard says nothing.
        return value;
    }

    private static Object as(Object value, Class<?> raw, Type[] of) {
        Type inner = of.length > 0 ? of[of.length - 1] : Object.class;
        if (raw == Optional.class) return Optional.ofNullable(as(value, inner));
        if (value == null) {
            if (raw.isPrimitive()) throw unfit(null, raw);
            return null;
        }
        if (raw == byte[].class && !(value instanceof List)) return value instanceof byte[] ? value : bytes(value);
        if (raw == String.class) return value instanceof String ? value : value instanceof byte[] ? text(value) : Json.write(value);
        if (value instanceof Map && raw.isAssignableFrom(LinkedHashMap.class)) {
            Map<Object, Object> map = new LinkedHashMap<>();
            Type key = of.length > 1 ? of[0] : Object.class;
            ((Map<?, ?>) value).forEach((name, one) -> map.put(as(name, key), as(one, inner)));
            return map;
        }
        if (value instanceof Collection && raw.isArray()) return as(value, raw.getComponentType(), true);
        boolean isList = raw.isAssignableFrom(ArrayList.class);
        if (value instanceof Collection && (isList || raw.isAssignableFrom(LinkedHashSet.class))) {
            Collection<Object> all = isList ? new ArrayList<>() : new LinkedHashSet<>();
            ((Collection<?>) value).forEach(one -> all.add(as(one, inner)));
            return all;
        }
        if (raw.isInstance(value)) return value;
        Object simple = simple(value, raw);
        if (simple != null) return simple;
        if (value instanceof Map) return raw.isRecord() ? record((Map<?, ?>) value, raw) : bean((Map<?, ?>) value, raw);
        throw unfit(value, raw);
    }

    private static Object as(Object value, Type component, boolean isArray) {
        List<?> list = new ArrayList<>((Collection<?>) value);
        Class<?> raw = component instanceof Class ? (Class<?>) component : Object.class;
        Object array = Array.newInstance(raw, list.size());
        for (int at = 0; at < list.size(); at++) Array.set(array, at, as(list.get(at), component));
        return array;
    }

    private static IllegalArgumentException unfit(Object value, Class<?> type) {
        String what = value == null ? "null" : value instanceof Map ? "an object" : value instanceof List ? "a list" : "" + value;
        return new IllegalArgumentException("the event has " + what + " where the handler wants " + type.getTypeName());
    }

    private static byte[] bytes(Object value) {
        String text = value instanceof String ? (String) value : Json.write(value);
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Object bytes) {
        return new String((byte[]) bytes, StandardCharsets.UTF_8);
    }

    /** Numbers, booleans, characters and enums; null if the type is none of them. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object simple(Object value, Class<?> raw) {
        try {
            if (value instanceof Number) {
                BigDecimal number = new BigDecimal(value.toString());
                if (raw == int.class || raw == Integer.class) return number.intValueExact();
                if (raw == long.class || raw == Long.class) return number.longValueExact();
                if (raw == double.class || raw == Double.class) return number.doubleValue();
                if (raw == float.class || raw == Float.class) return number.floatValue();
                if (raw == short.class || raw == Short.class) return number.shortValueExact();
                if (raw == byte.class || raw == Byte.class) return number.byteValueExact();
                if (raw == BigInteger.class) return number.toBigIntegerExact();
                if (raw == BigDecimal.class) return number;
            }
            if (value instanceof Boolean && raw == boolean.class) return value;
            if (value instanceof String && ((String) value).length() == 1 && (raw == char.class || raw == Character.class)) {
                return ((String) value).charAt(0);
            }
            if (value instanceof String && raw.isEnum()) return Enum.valueOf((Class) raw, (String) value);
            return null;
        } catch (ArithmeticException error) {
            throw unfit(value, raw);
        }
    }

    private static Object record(Map<?, ?> map, Class<?> type) {
        try {
            RecordComponent[] components = type.getRecordComponents();
            Class<?>[] types = Arrays.stream(components).map(RecordComponent::getType).toArray(Class<?>[]::new);
            Object[] values = new Object[components.length];
            for (int at = 0; at < values.length; at++) {
                values[at] = as(map.get(components[at].getName()), components[at].getGenericType());
            }
            Constructor<?> constructor = type.getDeclaredConstructor(types);
            constructor.setAccessible(true);
            return constructor.newInstance(values);
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(type.getName() + " cannot be made of the event", error);
        }
    }

    private static Object bean(Map<?, ?> map, Class<?> type) {
        try {
            Constructor<?> constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            Object made = constructor.newInstance();
            for (Method method : type.getMethods()) {
                String name = method.getName();
                if (name.length() < 4 || !name.startsWith("set") || method.getParameterCount() != 1) continue;
                String member = Character.toLowerCase(name.charAt(3)) + name.substring(4);
                if (!map.containsKey(member)) continue;
                method.setAccessible(true);
                method.invoke(made, as(map.get(member), method.getGenericParameterTypes()[0]));
            }
            for (Field field : type.getFields()) {
                boolean isOwn = !Modifier.isStatic(field.getModifiers()) && !Modifier.isFinal(field.getModifiers());
                if (!isOwn || !map.containsKey(field.getName())) continue;
                field.setAccessible(true);
                field.set(made, as(map.get(field.getName()), field.getGenericType()));
            }
            return made;
        } catch (NoSuchMethodException error) {
            throw new IllegalArgumentException(type.getName() + " has no constructor without parameters");
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(type.getName() + " cannot be made of the event", error);
        }
    }

    /** What a value is without classes of the user's. */
    static Object plain(Object value, int depth) {
        if (depth > DEPTH_MAX) throw new IllegalArgumentException("the result is nested too deep, or contains itself");
        if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) return value;
        if (value instanceof CharSequence || value instanceof Character || value instanceof Enum) return value.toString();
        if (value instanceof Optional) return plain(((Optional<?>) value).orElse(null), depth);
        if (value instanceof byte[]) return java.util.Base64.getEncoder().encodeToString((byte[]) value);
        if (value instanceof Map) {
            Map<String, Object> map = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((name, one) -> map.put(String.valueOf(name), plain(one, depth + 1)));
            return map;
        }
        List<Object> list = new ArrayList<>();
        if (value instanceof Iterable) {
            ((Iterable<?>) value).forEach(one -> list.add(plain(one, depth + 1)));
            return list;
        }
        if (value.getClass().isArray()) {
            for (int at = 0; at < Array.getLength(value); at++) list.add(plain(Array.get(value, at), depth + 1));
            return list;
        }
        // Dates, addresses and the like say themselves what they are.
        if (value.getClass().getName().startsWith("java.")) return value.toString();
        return members(value, depth);
    }

    private static Map<String, Object> members(Object value, int depth) {
        Map<String, Object> map = new LinkedHashMap<>();
        try {
            if (value.getClass().isRecord()) {
                for (RecordComponent component : value.getClass().getRecordComponents()) {
                    component.getAccessor().setAccessible(true);
                    map.put(component.getName(), plain(component.getAccessor().invoke(value), depth + 1));
                }
                return map;
            }
            for (Field field : value.getClass().getFields()) {
                if (Modifier.isStatic(field.getModifiers())) continue;
                field.setAccessible(true);
                map.put(field.getName(), plain(field.get(value), depth + 1));
            }
            Method[] methods = value.getClass().getMethods();
            // The machine gives them in no order.
            Arrays.sort(methods, java.util.Comparator.comparing(Method::getName));
            for (Method method : methods) {
                String name = method.getName();
                int prefix = name.startsWith("get") ? 3 : name.startsWith("is") && method.getReturnType() == boolean.class ? 2 : 0;
                boolean isOwn = method.getDeclaringClass() != Object.class && !Modifier.isStatic(method.getModifiers());
                if (prefix == 0 || name.length() == prefix || method.getParameterCount() > 0 || !isOwn) continue;
                method.setAccessible(true);
                String member = Character.toLowerCase(name.charAt(prefix)) + name.substring(prefix + 1);
                map.put(member, plain(method.invoke(value), depth + 1));
            }
            return map;
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException("the result's " + value.getClass().getName() + " cannot be written as JSON", error);
        }
    }
}
